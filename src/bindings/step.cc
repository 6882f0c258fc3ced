// The partitioned graph and the training step for Python.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/documents.h"
#include "bindings/interruptible.h"
#include "fetch/crossing.h"
#include "fetch/node_names.h"
#include "passes/memory/bound_graph.h"
#include "passes/partition/graph_builder.h"
#include "passes/partition/partition.h"
#include "passes/partition/partitioned.h"
#include "passes/schedule/control_deps.h"
#include "passes/schedule/segments.h"
#include "passes/schedule/training_step.h"

namespace py = pybind11;

namespace tofu {
namespace {

std::shared_ptr<Partitioned> Partition(
    const TablePlan& plan, const std::optional<std::vector<std::string>>& heads,
    const std::string& fetch, bool share, bool bundle, const std::string& crossing,
    int64_t small_bytes, int64_t spare_bytes, std::optional<int> view,
    const PassFunction& on_pass) {
  const Interruptible interruptible;
  auto partitioned = std::make_shared<Partitioned>(
      PartitionGraph(plan.graph(), plan.strategies(), plan.plan,
                     {heads, ParseFetchKind(fetch), share, ParseCrossing(crossing),
                      small_bytes, spare_bytes, bundle, view}));
  if (on_pass) OnPass(on_pass)("partition", DumpGraph(partitioned->graph));
  return partitioned;
}

py::tuple BoxTuple(const Box& box) {
  return py::make_tuple(py::tuple(py::cast(box.begin)), py::tuple(py::cast(box.end)));
}

// (name, role, shape, dtype, [(tile's name, begin, end) of each worker])
py::list VariableRecords(const std::vector<PartitionedVariable>& variables) {
  py::list records;
  for (const PartitionedVariable& variable : variables) {
    py::list tiles;
    for (const VariableTile& tile : variable.tiles) {
      tiles.append(py::make_tuple(tile.name) + BoxTuple(tile.box));
    }
    records.append(py::make_tuple(variable.name, variable.role,
                                  py::tuple(py::cast(variable.shape)),
                                  DtypeName(variable.dtype), tiles));
  }
  return records;
}

// (role, shape, dtype, [(head's number, begin, end) of each worker])
py::list HeadRecords(const std::vector<PartitionedHead>& heads) {
  py::list records;
  for (const PartitionedHead& head : heads) {
    py::list tiles;
    for (const HeadTile& tile : head.tiles) {
      tiles.append(py::make_tuple(tile.head) + BoxTuple(tile.box));
    }
    records.append(py::make_tuple(head.role, py::tuple(py::cast(head.shape)),
                                  DtypeName(head.dtype), tiles));
  }
  return records;
}

// Per worker, the bytes of all its tensors and of the copies it gets from others. With
// MultiFetch, copies are single numbers.
std::vector<int64_t> BytesPerWorker(const Partitioned& partitioned) {
  const Graph& graph = partitioned.graph;
  std::vector<int64_t> bytes(partitioned.workers, 0);
  bool is_multifetch = false;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    is_multifetch = is_multifetch || graph.nodes[node].op == kMultiFetchOp;
    for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
      bytes[partitioned.node_workers[node]] +=
          NumElements(graph.shape({node, i})) * DtypeBytes(graph.dtype({node, i}));
    }
  }
  if (is_multifetch) return bytes;
  for (int w = 0; w < partitioned.workers; ++w) {
    bytes[w] += partitioned.fetched_bytes_per_worker[w];
  }
  return bytes;
}

std::shared_ptr<Graph> Ordered(const Partitioned& partitioned) {
  const Interruptible interruptible;
  auto graph = std::make_shared<Graph>(partitioned.graph);
  AddControlDeps(graph.get());
  return graph;
}

// The graph is moved: copying it would take as long as a pass.
Partitioned WithGraphOf(Partitioned* partitioned) {
  Graph graph = std::exchange(partitioned->graph, {});
  Partitioned taken = *partitioned;
  taken.graph = std::move(graph);
  return taken;
}

std::shared_ptr<TrainingStep> Schedule(Partitioned& partitioned, bool take, bool joint,
                                       const PassFunction& on_pass) {
  const Interruptible interruptible;
  const StepCallback callback = on_pass ? StepCallback(OnPass(on_pass)) : nullptr;
  return std::make_shared<TrainingStep>(
      ScheduleStep(take ? WithGraphOf(&partitioned) : partitioned, joint, callback));
}

// The graphs are not copied: they are parts of their step.
std::vector<std::shared_ptr<Graph>> Graphs(const std::shared_ptr<TrainingStep>& step) {
  std::vector<std::shared_ptr<Graph>> graphs;
  for (Graph& graph : step->graphs) graphs.emplace_back(step, &graph);
  return graphs;
}

// The nodes of the operators that a GPU's engine gets as one, in the executor's numbers.
std::vector<std::pair<int, int>> Segments(const Graph& graph, int workers) {
  const Interruptible interruptible;
  const std::vector<int> of_nodes = NodeWorkers(graph, workers);
  std::vector<std::pair<int, int>> segments;
  for (NodeRange each : FindSegments(OrderAsBound(OutlineOf(graph), of_nodes))) {
    segments.emplace_back(each.begin, each.end);
  }
  return segments;
}

// (number in the graph, or -1 for a copy; worker) of each node, as an executor numbers
// them.
std::vector<std::pair<int, int>> BoundNodes(const Graph& graph, int workers) {
  const Interruptible interruptible;
  const BoundOrder order = OrderOf(graph, NodeWorkers(graph, workers), graph.heads);
  std::vector<std::pair<int, int>> nodes;
  for (int place = 0; place < order.size(); ++place) {
    nodes.emplace_back(order.sources[place], order.workers[place]);
  }
  return nodes;
}

std::vector<std::pair<std::string, int>> Saved(const TrainingStep& step) {
  std::vector<std::pair<std::string, int>> saved;
  for (const SavedEntry& entry : step.saved) {
    saved.emplace_back(entry.name, entry.forward_head);
  }
  return saved;
}

}  // namespace

void BindStep(py::module_* module) {
  py::class_<Partitioned, std::shared_ptr<Partitioned>>(*module, "Partitioned",
                                                        "A graph divided over workers.")
      .def_readonly("workers", &Partitioned::workers)
      .def_property_readonly("graph",
                             [](const std::shared_ptr<Partitioned>& p) {
                               return std::shared_ptr<Graph>(p, &p->graph);
                             })
      .def_property_readonly(
          "variables", [](const Partitioned& p) { return VariableRecords(p.variables); })
      .def_property_readonly("heads",
                             [](const Partitioned& p) { return HeadRecords(p.heads); })
      .def_readonly("node_workers", &Partitioned::node_workers)
      .def_readonly("fetched_bytes_per_worker", &Partitioned::fetched_bytes_per_worker)
      .def_readonly("fetched_bytes", &Partitioned::fetched_bytes)
      .def_readonly("shared_bytes", &Partitioned::shared_bytes)
      .def_readonly("relayed_bytes", &Partitioned::relayed_bytes)
      .def_property_readonly("bytes_per_worker", &BytesPerWorker)
      .def("in_order", &Ordered);
  py::class_<TrainingStep, std::shared_ptr<TrainingStep>>(
      *module, "TrainingStep", "The graphs that the executors of a training step run.")
      .def_readonly("workers", &TrainingStep::workers)
      .def_property_readonly(
          "variables", [](const TrainingStep& s) { return VariableRecords(s.variables); })
      .def_property_readonly(
          "forward_heads",
          [](const TrainingStep& s) { return HeadRecords(s.forward_heads); })
      .def_property_readonly(
          "backward_heads",
          [](const TrainingStep& s) { return HeadRecords(s.backward_heads); })
      .def_property_readonly("graphs", &Graphs)
      .def_readonly("is_joint", &TrainingStep::is_joint)
      .def_readonly("forward_nodes", &TrainingStep::forward_nodes)
      .def_readonly("nodes", &TrainingStep::nodes)
      .def_property_readonly("saved", &Saved);
  module->def("partition", &Partition, py::arg("plan"), py::kw_only(),
              py::arg("heads") = py::none(), py::arg("fetch") = "plain",
              py::arg("share") = true, py::arg("bundle") = true,
              py::arg("crossing") = "plain_tiles",
              py::arg("small_bytes") = kSmallFetchBytes, py::arg("spare_bytes") = 0,
              py::arg("view") = py::none(), py::arg("on_pass") = py::none(),
              "Divide the training graph of a plan over the plan's workers.");
  module->def("segments", &Segments, py::arg("graph"), py::arg("workers"),
              "Find the operators of a graph that a GPU's engine gets as one.");
  module->def("bound_nodes", &BoundNodes, py::arg("graph"), py::arg("workers"),
              "List the nodes of a graph and its copies, as an executor numbers them.");
  module->def("schedule", &Schedule, py::arg("partitioned"), py::kw_only(),
              py::arg("take") = false, py::arg("joint") = false,
              py::arg("on_pass") = py::none(),
              "Turn a partitioned graph into the graphs that executors run.");
}

}  // namespace tofu
