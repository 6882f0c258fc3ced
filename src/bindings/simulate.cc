// Machines and the simulator, for Python.
#include "passes/simulate/simulate.h"

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/documents.h"
#include "bindings/memory_rules.h"
#include "machine/machine.h"
#include "passes/search/cost/time_cost.h"
#include "passes/simulate/operator_calls.h"

namespace py = pybind11;

namespace tofu {
namespace {

struct GraphCalls {
  SharedGraph graph;
  OperatorCalls calls;
};

// (kind, FLOPs, bytes)
using WorkRecord = std::tuple<std::string, double, double>;

std::vector<Work> Works(const std::vector<WorkRecord>& records) {
  std::vector<Work> works;
  for (const auto& [kind, flops, bytes] : records) {
    works.push_back({ParseKind(kind), flops, bytes});
  }
  return works;
}

std::shared_ptr<TimeModel> MakeTimeModel(const Machine& machine, const GraphCalls& calls,
                                         const std::vector<WorkRecord>& works,
                                         bool is_balanced) {
  const std::vector<Work> call_works = Works(works);
  auto model = std::make_shared<TimeModel>(TimeModel{machine, {}, is_balanced});
  for (int call : calls.calls.node_calls) {
    model->works.push_back(call < 0 ? Work{} : call_works.at(call));
  }
  return model;
}

int64_t LeastMemory(const Machine& machine) {
  int64_t least = machine.device.memory_bytes;
  for (const DeviceKind& kind : machine.kinds) {
    least = std::min(least, kind.device.memory_bytes);
  }
  return least;
}

std::vector<NodeView> CalledNodes(const GraphCalls& calls) {
  std::vector<NodeView> nodes;
  for (int node : calls.calls.nodes) nodes.push_back({calls.graph, node});
  return nodes;
}

py::dict Record(const Spent& spent) {
  py::dict record;
  record["host"] = spent.host_s;
  record["compute"] = spent.compute_s;
  record["links"] = spent.link_s;
  return record;
}

py::list WorkerRecords(const Simulation& simulation) {
  py::list records;
  for (const WorkerUse& use : simulation.workers) {
    py::dict record;
    record["busy_seconds"] = use.busy_s;
    record["waiting_seconds"] = use.waiting_s;
    record["seconds"] = Record(use.spent);
    record["static_bytes"] = use.static_bytes;
    record["allocated_bytes"] = use.allocated_bytes;
    record["live_bytes"] = use.live_bytes;
    records.append(record);
  }
  return records;
}

py::list LinkRecords(const Simulation& simulation, const Machine& machine) {
  py::list records;
  for (const LinkUse& use : simulation.execution.links) {
    const int devices = machine.links[use.level].devices;
    py::dict record;
    record["name"] = machine.links[use.level].name;
    record["devices"] =
        py::make_tuple(use.group * devices, (use.group + 1) * devices - 1);
    record["busy_seconds"] = use.busy_s;
    record["bytes"] = use.bytes;
    records.append(record);
  }
  return records;
}

// (name, operator, worker, begin, end) of an operation.
py::tuple OperationRecord(const Simulation& simulation, const BoundGraph& bound,
                          int number) {
  const Operation& operation = simulation.operations.operations[number];
  const Ran& ran = simulation.execution.ran[number];
  const Node& node = bound.graph.nodes[operation.node];
  return py::make_tuple(node.name, node.op, operation.device, ran.begin_s, ran.end_s);
}

py::list AllOperations(const Simulation& simulation, const BoundGraph& bound) {
  py::list records;
  for (int i = 0; i < static_cast<int>(simulation.execution.ran.size()); ++i) {
    records.append(OperationRecord(simulation, bound, i));
  }
  return records;
}

py::dict PathRecord(const Simulation& simulation, const BoundGraph& bound) {
  py::list operations;
  for (int number : simulation.path.operations) {
    operations.append(OperationRecord(simulation, bound, number));
  }
  py::dict record = Record(simulation.path.spent);
  record["script"] = simulation.path.script_s;
  py::dict path;
  path["seconds"] = record;
  path["operations"] = operations;
  return path;
}

py::dict RunSimulation(const GraphUses& uses, const std::vector<Rule>& rules,
                       const GraphCalls& calls, const std::vector<WorkRecord>& works,
                       const Machine& machine, int workers, int match_range,
                       bool search_match_range, const std::vector<int>& external_heads,
                       bool is_stock, bool with_timeline) {
  SimulationOptions options;
  options.is_stock = is_stock;
  Simulation simulation;
  BoundGraph bound;
  {
    const py::gil_scoped_release unlock;
    const MemoryPrediction prediction = PredictExecutorMemory(
        uses, rules, {workers, match_range, search_match_range, external_heads});
    bound = InOrder(*uses.graph, prediction.order);
    simulation = Simulate(bound, prediction.table, prediction.memory, calls.calls,
                          Works(works), machine, options);
  }
  py::dict result;
  result["step_seconds"] = simulation.execution.step_s;
  result["script_seconds"] = simulation.execution.push_s;
  result["operations"] = simulation.operations.operations.size();
  result["workers"] = WorkerRecords(simulation);
  result["links"] = LinkRecords(simulation, machine);
  result["critical_path"] = PathRecord(simulation, bound);
  result["timeline"] = with_timeline ? AllOperations(simulation, bound) : py::list();
  return result;
}

}  // namespace

void BindSimulate(py::module_* module) {
  py::class_<Machine, std::shared_ptr<Machine>>(*module, "Machine",
                                                "The hardware that a step runs on.")
      .def(py::init([](const std::string& text, const std::string& where) {
             return std::make_shared<Machine>(ReadMachine(text, where));
           }),
           py::arg("text"), py::kw_only(), py::arg("where") = "machine file")
      .def_readonly("name", &Machine::name)
      .def_readonly("sources", &Machine::sources)
      .def_readonly("measured", &Machine::measured)
      .def_property_readonly("devices", [](const Machine& m) { return m.device.count; })
      .def_property_readonly("is_gpu", [](const Machine& m) { return m.device.is_gpu; })
      .def_property_readonly("memory_bytes", &LeastMemory,
                             "Memory of the smallest device.")
      .def_property_readonly("is_mixed",
                             [](const Machine& m) { return m.kinds.size() > 1; })
      .def_property_readonly("tile_multiple",
                             [](const Machine& m) { return m.tile_multiple; })
      .def(
          "memory_of",
          [](const Machine& m, int number) { return m.DeviceOf(number).memory_bytes; },
          py::arg("device"), "Memory of a device.")
      .def(
          "kind_of",
          [](const Machine& m, int number) {
            return m.kinds.empty() ? std::string() : m.kinds[m.KindOf(number)].name;
          },
          py::arg("device"), "The kind of a device; \"\" if all are alike.")
      .def(
          "operator_seconds",
          [](const Machine& machine, const std::string& op, const WorkRecord& work) {
            return ComputeSeconds(machine, op, Works({work})[0]);
          },
          py::arg("op"), py::arg("work"))
      .def(
          "seconds_of",
          [](const Machine& machine, const GraphCalls& calls,
             const std::vector<WorkRecord>& records, double divided, int device) {
            const std::vector<Work> works = Works(records);
            double sum = 0;
            for (size_t node = 0; node < calls.calls.node_calls.size(); ++node) {
              const int call = calls.calls.node_calls[node];
              if (call < 0) continue;
              Work work = works.at(static_cast<size_t>(call));
              work.flops /= divided;
              work.bytes /= divided;
              sum += ComputeSeconds(machine, calls.graph->nodes[node].op, work, device);
            }
            return sum;
          },
          py::arg("calls"), py::arg("works"), py::arg("divided"), py::arg("device"),
          "What a device needs for one of `divided` parts of all operators.");
  py::class_<GraphCalls>(*module, "OperatorCalls",
                         "The different calls of operators in a graph.")
      .def(py::init([](const std::shared_ptr<Graph>& graph) {
             return GraphCalls{graph, FindOperatorCalls(*graph)};
           }),
           py::arg("graph"))
      .def_property_readonly("nodes", &CalledNodes);
  py::class_<TimeModel, std::shared_ptr<TimeModel>>(
      *module, "TimeModel", "A machine, and the work of every operator of a graph.")
      .def(py::init(&MakeTimeModel), py::arg("machine"), py::arg("calls"),
           py::arg("works"), py::arg("is_balanced") = false);
  module->def("simulate", &RunSimulation, py::arg("uses"), py::arg("rules"),
              py::arg("calls"), py::arg("works"), py::arg("machine"), py::kw_only(),
              py::arg("workers") = 1, py::arg("match_range") = 16,
              py::arg("search_match_range") = false,
              py::arg("external_heads") = std::vector<int>(), py::arg("is_stock") = false,
              py::arg("with_timeline") = false, "Simulate a training step on a machine.");
}

}  // namespace tofu
