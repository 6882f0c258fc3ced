// Predicts what an executor will allocate, for Python.

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/documents.h"
#include "bindings/interruptible.h"
#include "bindings/memory_rules.h"
#include "graph/graph.h"
#include "passes/memory/operator_uses.h"
#include "passes/partition/graph_builder.h"

namespace py = pybind11;

namespace tofu {
namespace {

using LiveRecord = std::tuple<std::string, std::string, int, int64_t, int, int, int>;

// The worker of every node, from the context groups that partition wrote. Without
// any, all nodes belong to worker 0.
std::vector<int> WorkersOf(const Graph& graph, int num_workers) {
  std::unordered_map<Name, int> numbers;
  for (int w = 0; w < num_workers; ++w) numbers.emplace(WorkerGroup(w), w);
  std::vector<int> workers;
  workers.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    if (node.group.empty()) {
      workers.push_back(0);
      continue;
    }
    const auto worker = numbers.find(node.group);
    TOFU_CHECK_USER(worker != numbers.end(), Blame::kGraph)
        << "node " << node.name << ": found context group \"" << node.group
        << "\", expected worker0 to worker" << num_workers - 1;
    workers.push_back(worker->second);
  }
  return workers;
}

MemoryTable TableOf(const OperatorUses& uses, const std::vector<Rule>& rules) {
  MemoryTable table;
  table.node_rules = uses.node_uses;
  for (const auto& [pairs, ignored] : rules) {
    MemoryRule rule;
    for (const auto& [input, output, identity] : pairs) {
      rule.pairs.push_back({input, output, identity});
    }
    rule.ignored_inputs = ignored;
    table.rules.push_back(std::move(rule));
  }
  return table;
}

LiveRecord Record(const Graph& graph, const LiveTensor& live) {
  const bool is_copy = live.node < 0;
  return {is_copy ? "" : graph.nodes[live.node].name,
          is_copy ? std::string() : std::string(graph.nodes[live.node].op),
          live.output,
          live.bytes,
          live.head,
          live.born,
          live.died};
}

// The node that represents each way to call an operator.
std::vector<NodeView> UsedNodes(const GraphUses& uses) {
  std::vector<NodeView> nodes;
  for (int node : uses.uses.nodes) nodes.push_back({uses.graph, node});
  return nodes;
}

py::dict PredictMemory(const GraphUses& uses, const std::vector<Rule>& rules, int workers,
                       int match_range, bool search_match_range,
                       const std::vector<int>& external_heads, int only_worker) {
  ExecutorMemory memory;
  std::vector<LiveRecord> lives;
  std::vector<std::string> moments;
  {
    const Interruptible interruptible;
    const Graph& graph = *uses.graph;
    memory = PredictExecutorMemory(
                 uses, rules,
                 {workers, match_range, search_match_range, external_heads, only_worker})
                 .memory;
    for (const LiveTensor& live : memory.lives) lives.push_back(Record(graph, live));
    for (int node : memory.moments) {
      moments.push_back(node < 0 ? "" : graph.nodes[node].name);
    }
  }
  py::dict result;
  result["match_range"] = memory.match_range;
  result["planned_bytes"] = memory.planned_bytes;
  result["bytes_per_worker"] = memory.bytes_per_worker;
  result["live_per_worker"] = memory.live_per_worker;
  result["peak_worker"] = memory.peak_worker;
  result["moments"] = moments;
  result["lives"] = lives;
  return result;
}

}  // namespace

MemoryPrediction PredictExecutorMemory(const GraphUses& uses,
                                       const std::vector<Rule>& rules,
                                       const MemorySettings& settings) {
  const Graph& graph = *uses.graph;
  MemoryPrediction prediction;
  prediction.table = TableOf(uses.uses, rules);
  CheckMemoryTable(prediction.table, graph);
  ExecutorMemoryOptions options;
  options.num_workers = settings.workers;
  options.match_range = settings.match_range;
  options.search_match_range = settings.search_match_range;
  options.only_worker = settings.only_worker;
  options.external_heads.assign(graph.heads.size(), 0);
  for (int head : settings.external_heads) options.external_heads.at(head) = 1;
  prediction.order = OrderOf(graph, WorkersOf(graph, settings.workers), graph.heads);
  prediction.memory =
      PlanExecutorMemory(graph, prediction.order, prediction.table, options);
  return prediction;
}

void BindMemory(py::module_* module) {
  py::class_<GraphUses>(*module, "OperatorUses",
                        "The ways in which a graph calls its operators.")
      .def(py::init([](const std::shared_ptr<Graph>& graph) {
             return GraphUses{graph, FindOperatorUses(*graph)};
           }),
           py::arg("graph"))
      .def_property_readonly("nodes", &UsedNodes);
  module->def("executor_memory", &PredictMemory, py::arg("uses"), py::arg("rules"),
              py::kw_only(), py::arg("workers") = 1, py::arg("match_range") = 16,
              py::arg("search_match_range") = false,
              py::arg("external_heads") = std::vector<int>(), py::arg("only_worker") = -1,
              "Predict what MXNet's executor allocates for a graph.");
}

}  // namespace tofu
