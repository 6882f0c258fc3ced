#include "bindings/memory.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/memory/bound_graph.h"
#include "passes/memory/executor_memory.h"
#include "passes/memory/operator_uses.h"
#include "passes/partition/emit_multifetch.h"
#include "passes/partition/graph_builder.h"
#include "passes/schedule/relay_regions.h"
#include "passes/schedule/step_graphs.h"

namespace py = pybind11;

namespace tofu {
namespace {

using SharedGraph = std::shared_ptr<Graph>;
using LiveRecord = std::tuple<std::string, std::string, int, int64_t, bool>;

// The worker of every node, from the context groups that partition wrote; a
// graph without any is all worker 0's.
std::vector<int> NodeWorkers(const Graph& graph, int num_workers) {
  std::vector<int> workers;
  for (const Node& node : graph.nodes) {
    const auto group = node.attrs.find(kContextAttr);
    int worker = 0;
    while (group != node.attrs.end() && worker < num_workers &&
           group->second != WorkerContext(worker)) {
      ++worker;
    }
    TOFU_CHECK_USER(worker < num_workers, Blame::kGraph)
        << "node " << node.name << ": found context group \"" << group->second
        << "\", expected worker0 to worker" << num_workers - 1;
    workers.push_back(worker);
  }
  return workers;
}

LiveRecord Record(const Graph& graph, const LiveTensor& live) {
  if (live.node < 0) return {"", "", live.output, live.bytes, live.is_head};
  // A fetched region is read through a relay that lies where it lies.
  const auto fetch_of = [&](int node) {
    return IsRelay(graph, graph.nodes[node]) ? graph.nodes[node].inputs[0].node : node;
  };
  const int writer = fetch_of(live.node);
  const Node& node = graph.nodes[writer];
  const bool is_region = node.op == kMultiFetchOp && live.output == 0;
  const bool is_head =
      live.is_head ||
      (is_region && std::any_of(graph.heads.begin(), graph.heads.end(),
                                [&](NodeEntry h) { return fetch_of(h.node) == writer; }));
  return {node.name, node.op, live.output, live.bytes, is_head};
}

py::dict PredictMemory(const SharedGraph& graph, const std::string& rules_json,
                       int workers, int match_range, bool search_match_range,
                       const std::vector<int>& external_heads) {
  ExecutorMemory memory;
  std::vector<LiveRecord> peak;
  {
    const py::gil_scoped_release unlock;
    const MemoryTable table = ReadMemoryTable(rules_json, *graph);
    ExecutorMemoryOptions options;
    options.num_workers = workers;
    options.match_range = match_range;
    options.search_match_range = search_match_range;
    options.external_heads.assign(graph->heads.size(), 0);
    for (int head : external_heads) options.external_heads.at(head) = 1;
    memory = PlanExecutorMemory(OrderAsBound(*graph, NodeWorkers(*graph, workers)), table,
                                options);
    for (const LiveTensor& live : memory.peak) peak.push_back(Record(*graph, live));
  }
  py::dict result;
  result["match_range"] = memory.match_range;
  result["planned_bytes"] = memory.planned_bytes;
  result["bytes_per_worker"] = memory.bytes_per_worker;
  result["live_per_worker"] = memory.live_per_worker;
  result["peak"] = peak;
  return result;
}

using Step = std::pair<std::string, std::vector<SharedGraph>>;

Step Share(StepGraphs step) {
  std::vector<SharedGraph> graphs;
  for (Graph& graph : step.graphs) {
    graphs.push_back(std::make_shared<Graph>(std::move(graph)));
  }
  const std::string document =
      PartitionedJson(step.partitioned)
          .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return {document, std::move(graphs)};
}

Step StepOfPlan(const std::string& graph_json, const std::string& table_json,
                const std::string& plan_json, const std::string& fetch, bool joint) {
  const py::gil_scoped_release unlock;
  const Graph graph = ReadGraph(graph_json);
  const StrategyTable table = ReadStrategyTable(table_json, graph);
  const Plan plan = ReadPlan(plan_json, graph, table);
  return Share(MakeStepGraphs(graph, table, plan, ParseFetchKind(fetch), joint));
}

Step StepOfTexts(const std::string& partitioned_json, const std::string& phases_json) {
  const py::gil_scoped_release unlock;
  return Share(ReadStepGraphs(partitioned_json, phases_json));
}

}  // namespace

void BindMemory(py::module_* module) {
  py::class_<Graph, SharedGraph>(*module, "Graph", "A graph that stays in C++.")
      .def(py::init([](const std::string& text) {
             const py::gil_scoped_release unlock;
             return std::make_shared<Graph>(ReadGraph(text));
           }),
           py::arg("text"));
  module->def("step_graphs", &StepOfPlan, py::arg("graph"), py::arg("table"),
              py::arg("plan"), py::kw_only(), py::arg("fetch") = "plain",
              py::arg("joint") = false,
              "The partitioned graph (JSON) but its nodes, and the executors' graphs.");
  module->def("read_step_graphs", &StepOfTexts, py::arg("partitioned"), py::arg("phases"),
              "The same of what partition and phases returned.");
  module->def(
      "operator_uses",
      [](const SharedGraph& graph) {
        const py::gil_scoped_release unlock;
        return OperatorUses(*graph);
      },
      py::arg("graph"), "The ways in which a graph calls its operators (JSON).");
  module->def("executor_memory", &PredictMemory, py::arg("graph"), py::arg("rules"),
              py::kw_only(), py::arg("workers") = 1, py::arg("match_range") = 16,
              py::arg("search_match_range") = false,
              py::arg("external_heads") = std::vector<int>(),
              "Predict what MXNet's executor allocates for a graph.");
}

}  // namespace tofu
