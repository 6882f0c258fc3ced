// Plan and the search for one, for Python.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/documents.h"
#include "bindings/interruptible.h"
#include "bindings/plan_rows.h"
#include "graph/head_roles.h"
#include "graph/names.h"
#include "graph/plan_json.h"
#include "passes/memory/estimate_memory.h"
#include "passes/search/cost/give_shares.h"
#include "passes/search/cost/predict.h"
#include "passes/search/explain.h"
#include "passes/search/make_frontier.h"
#include "passes/search/make_plan.h"
#include "passes/search/modes.h"
#include "passes/search/step_problem.h"

namespace py = pybind11;

namespace tofu {
namespace {

using SharedPlan = std::shared_ptr<TablePlan>;

// Calls a Python function from a search, which has released the interpreter's lock.
ProgressCallback OnProgress(const py::function& function) {
  return [&function](const SearchProgress& now) {
    const py::gil_scoped_acquire lock;
    const py::object best =
        now.best_cost < 0 ? py::none() : py::object(py::int_(now.best_cost));
    function(now.stage, best, now.lower_bound);
  };
}

// The options that every search has.
PlanOptions CommonOptions(int workers,
                          const std::map<std::string, std::vector<int>>& pins,
                          const std::string& mode, const std::vector<int>& parts,
                          double time_limit_s, const Objective& objective) {
  PlanOptions options;
  options.workers = workers;
  options.pins = pins;
  options.mode = mode;
  options.parts = parts;
  options.time_limit_s = time_limit_s;
  options.objective = objective;
  return options;
}

SharedPlan Search(const std::shared_ptr<GraphTable>& table, int workers,
                  const std::map<std::string, std::vector<int>>& pins,
                  const std::string& mode, const std::vector<int>& parts,
                  bool allow_replication, bool tie_updates, bool equal_tiles,
                  int64_t memory_limit, bool coarsen, double time_limit_s,
                  const std::string& objective, const std::shared_ptr<TimeModel>& time,
                  const PassFunction& on_pass,
                  const std::optional<py::function>& on_progress) {
  PlanOptions options =
      CommonOptions(workers, pins, mode, parts, time_limit_s, {objective, time.get()});
  options.allow_replication = allow_replication;
  options.tie_updates = tie_updates;
  options.equal_tiles = equal_tiles;
  options.memory_limit_bytes = memory_limit;
  options.coarsen = coarsen;
  const Interruptible interruptible;
  const PassCallback callback = on_pass ? PassCallback(OnPass(on_pass)) : nullptr;
  return std::make_shared<TablePlan>(
      TablePlan{table, MakePlan(*table->graph, table->table, options, callback,
                                on_progress ? OnProgress(*on_progress) : nullptr)});
}

py::dict SearchFrontier(const std::shared_ptr<GraphTable>& table, int workers,
                        const std::map<std::string, std::vector<int>>& pins,
                        const std::string& mode, const std::vector<int>& parts,
                        bool tie_updates, bool equal_tiles, int searches,
                        double time_limit_s, const std::string& objective,
                        const std::shared_ptr<TimeModel>& time,
                        const std::optional<py::function>& on_progress) {
  PlanOptions options =
      CommonOptions(workers, pins, mode, parts, time_limit_s, {objective, time.get()});
  options.allow_replication = true;
  options.tie_updates = tie_updates;
  options.equal_tiles = equal_tiles;
  PlanFrontier frontier;
  {
    const Interruptible interruptible;
    frontier = MakeFrontier(*table->graph, table->table, options, searches,
                            on_progress ? OnProgress(*on_progress) : nullptr);
  }
  std::vector<SharedPlan> plans;
  for (Plan& plan : frontier.plans) {
    plans.push_back(std::make_shared<TablePlan>(TablePlan{table, std::move(plan)}));
  }
  return py::dict(py::arg("plans") = plans, py::arg("tile_bytes") = frontier.tile_bytes,
                  py::arg("complete") = frontier.is_complete);
}

std::string ToJson(const TablePlan& plan) {
  return WritePlan(plan.plan, plan.graph(), plan.strategies());
}

// Bytes of the fullest worker, by kind.
py::dict EstimatedMemory(const TablePlan& plan) {
  WorkerBytes bytes;
  {
    const py::gil_scoped_release unlock;
    bytes = EstimateMemory(plan.graph(), plan.strategies(), plan.plan);
  }
  return py::dict(py::arg("parameters") = bytes.parameters,
                  py::arg("gradients") = bytes.gradients,
                  py::arg("optimizer_state") = bytes.optimizer_state,
                  py::arg("activations") = bytes.activations,
                  py::arg("fetch_buffers") = bytes.fetch_buffers);
}

std::vector<int> CutsOf(const TablePlan& plan, const std::string& tensor) {
  const int entry = FindEntry(plan.graph(), tensor);
  TOFU_CHECK_USER(entry >= 0, Blame::kPlan)
      << "plan: found no tensor " << tensor << ", expected a name of the graph";
  return plan.plan.tensor_cuts[entry];
}

// The plan with its predicted time, and its routes, on the model's machine.
SharedPlan WithPrediction(const TablePlan& plan, const TimeModel& model) {
  TablePlan predicted = plan;
  const int64_t bound = plan.plan.predicted ? plan.plan.predicted->lower_bound_ns : -1;
  Prediction prediction = PredictTime(plan.graph(), plan.strategies(), plan.plan, model);
  predicted.plan.predicted = std::move(prediction.time);
  predicted.plan.routes = std::move(prediction.routes);
  predicted.plan.output_routes = std::move(prediction.output_routes);
  predicted.plan.predicted->lower_bound_ns = bound;
  return std::make_shared<TablePlan>(std::move(predicted));
}

// The plan with the same cuts into other shares. `time`: null for no prediction.
SharedPlan WithShares(const TablePlan& plan, const std::vector<std::vector<int>>& shares,
                      int multiple, const std::shared_ptr<TimeModel>& time) {
  return std::make_shared<TablePlan>(
      TablePlan{plan.table, GiveShares(plan.graph(), plan.strategies(), plan.plan,
                                       {shares, multiple}, time.get())});
}

// [dimension][piece]: begin and end of a tensor's pieces, in the order of their
// numbers.
std::vector<std::vector<std::pair<int64_t, int64_t>>> TileBounds(
    const Shape& shape, const std::vector<int>& cuts, const std::vector<int>& parts,
    const std::vector<std::vector<int>>& shares, int multiple) {
  const TileShares given = {shares, multiple};
  const Division division(parts, given);
  std::vector<std::vector<std::pair<int64_t, int64_t>>> bounds;
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<Range> pieces = {{0, shape[d]}};
    for (size_t step = 0; step < std::min(cuts.size(), parts.size()); ++step) {
      if (cuts[step] != static_cast<int>(d)) continue;
      std::vector<Range> next;
      for (const Range& piece : pieces) {
        for (int digit = 0; digit < parts[step]; ++digit) {
          next.push_back(division.Piece(piece, step, digit));
        }
      }
      pieces = std::move(next);
    }
    std::vector<std::pair<int64_t, int64_t>>& of_dim = bounds.emplace_back();
    for (const Range& piece : pieces) of_dim.emplace_back(piece.begin, piece.end);
  }
  return bounds;
}

// Bytes that the operators named `ops` communicate per step.
int64_t OperatorBytes(const TablePlan& plan, const std::vector<std::string>& ops) {
  int64_t bytes = 0;
  for (int node = 0; node < plan.graph().num_nodes(); ++node) {
    const std::string& op = plan.graph().nodes[node].op;
    if (std::find(ops.begin(), ops.end(), op) != ops.end()) {
      bytes += plan.plan.node_bytes[node];
    }
  }
  return bytes;
}

// Whether some step replicates the tensor because no dimension has enough elements left.
bool IsIndivisible(const TablePlan& plan, int entry) {
  const Shape& shape = plan.graph().shapes[entry];
  CutExtents extents(shape);
  for (size_t step = 0; step < plan.plan.parts.size(); ++step) {
    const int parts = plan.plan.parts[step];
    const int cut = plan.plan.tensor_cuts[entry][step];
    if (cut != kReplicated) {
      extents.Cut(cut, parts);
      continue;
    }
    bool can_cut = false;
    for (int dim = 0; dim < static_cast<int>(shape.size()); ++dim) {
      can_cut = can_cut || extents.CanCut(dim, parts);
    }
    if (!can_cut) return true;
  }
  return false;
}

// Bytes of indivisible tensors by the name of their node.
std::map<std::string, int64_t> IndivisibleBytes(const TablePlan& plan) {
  const Graph& graph = plan.graph();
  std::map<std::string, int64_t> bytes;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
      const int entry = graph.entry_id({node, i});
      if (!IsIndivisible(plan, entry)) continue;
      bytes[graph.nodes[node].name] +=
          NumElements(graph.shapes[entry]) * DtypeBytes(graph.dtypes[entry]);
    }
  }
  return bytes;
}

// An estimate of the bytes of the fullest worker.
int64_t MemoryBytes(const TablePlan& plan) {
  return EstimateMemory(plan.graph(), plan.strategies(), plan.plan).total();
}

int64_t UpdateBytes(const TablePlan& plan) {
  const Graph& graph = plan.graph();
  int64_t bytes = 0;
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    if (RoleKind(HeadRole(graph, h)) != kUpdateKind) continue;
    bytes += plan.plan.node_bytes[graph.heads[h].node];
  }
  return bytes;
}

int NumOperators(const TablePlan& plan) {
  const auto& nodes = plan.graph().nodes;
  return static_cast<int>(std::count_if(nodes.begin(), nodes.end(),
                                        [](const Node& n) { return !n.is_variable(); }));
}

std::string ProblemOfStep(const TablePlan& plan, int step) {
  return WriteStepProblem(StepProblem(plan.graph(), plan.strategies(), plan.plan, step));
}

void BindPlanClass(py::module_* module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<TablePlan, SharedPlan>(*module, "Plan", "How a graph is partitioned.")
      .def(
          py::init([](const std::string& text, const std::shared_ptr<GraphTable>& table) {
            const py::gil_scoped_release unlock;  // as in BindGraph
            return std::make_shared<TablePlan>(
                TablePlan{table, ReadPlan(text, *table->graph, table->table)});
          }),
          py::arg("text"), py::arg("table"))
      .def("to_json", &ToJson, unlocked)
      .def("cuts", &CutsOf, py::arg("tensor"))
      .def("operator_bytes", &OperatorBytes, py::arg("ops"))
      .def("indivisible_bytes", &IndivisibleBytes)
      .def(
          "explain",
          [](const TablePlan& plan, const std::string& name) {
            return Explain(plan.graph(), plan.strategies(), plan.plan, name);
          },
          py::arg("name"), unlocked)
      .def("with_prediction", &WithPrediction, py::arg("time"), unlocked)
      .def("with_shares", &WithShares, py::kw_only(), py::arg("shares"),
           py::arg("multiple"), py::arg("time"), unlocked)
      .def_property_readonly("cost", [](const TablePlan& p) { return p.plan.cost(); })
      .def_property_readonly("lower_bound",
                             [](const TablePlan& p) { return p.plan.lower_bound(); })
      .def("step_problem", &ProblemOfStep, py::kw_only(), py::arg("step"), unlocked)
      .def_property_readonly(
          "table",
          [](const TablePlan& p) { return std::const_pointer_cast<GraphTable>(p.table); })
      .def_property_readonly("workers",
                             [](const TablePlan& p) { return p.plan.workers(); })
      .def_property_readonly("parts", [](const TablePlan& p) { return p.plan.parts; })
      .def_property_readonly(
          "shares", [](const TablePlan& p) { return p.plan.shares.of_steps; },
          "The shares of each step's parts, [] where they are equal; none: all are.")
      .def_property_readonly("tile_multiple",
                             [](const TablePlan& p) { return p.plan.shares.multiple; })
      .def_property_readonly("total_bytes",
                             [](const TablePlan& p) { return p.plan.total_bytes(); })
      .def_property_readonly("lower_bound_bytes",
                             [](const TablePlan& p) { return p.plan.lower_bound_bytes; })
      .def_property_readonly("status",
                             [](const TablePlan& p) { return StatusText(p.plan.status); })
      .def_property_readonly("search_seconds",
                             [](const TablePlan& p) { return p.plan.search_seconds; })
      .def_property_readonly("mode", [](const TablePlan& p) { return p.plan.mode; })
      .def_property_readonly("objective",
                             [](const TablePlan& p) {
                               return p.plan.objective ? p.plan.objective->name : "bytes";
                             })
      .def_property_readonly("steps", &StepsOf)
      .def_property_readonly("tensors", &TensorsOf)
      .def_property_readonly("operators", &OperatorsOf)
      .def_property_readonly("predicted", &PredictedOf)
      .def_property_readonly("routes", &RoutesOf)
      .def_property_readonly("output_routes", &OutputRoutesOf)
      .def("estimate_memory", &EstimatedMemory)
      .def_property_readonly("fullest_worker",
                             [](const TablePlan& p) { return FullestWorker(p.plan); })
      .def_property_readonly("num_nodes",
                             [](const TablePlan& p) { return p.graph().num_nodes(); })
      .def_property_readonly("num_operators", &NumOperators)
      .def_property_readonly(
          "update_bytes", &UpdateBytes,
          "Bytes that updates communicate, outside of the partitioned graph.")
      .def_property_readonly("memory_bytes", &MemoryBytes);
}

}  // namespace

void BindPlan(py::module_* module) {
  BindPlanClass(module);
  module->attr("search_modes") = SearchModes();
  module->attr("max_workers") = kMaxWorkers;
  module->def(
      "ties_updates",
      [](const std::string& mode, bool allow_replication) {
        return UpdateTiesOf(mode, allow_replication) == UpdateTies::kAll;
      },
      py::arg("mode"), py::arg("allow_replication"));
  module->def("tile_bounds", &TileBounds, py::arg("shape"), py::arg("cuts"),
              py::arg("parts"), py::arg("shares"), py::arg("multiple"),
              "The pieces along each dimension of a tensor.");
  const PlanOptions defaults;
  module->def("plan", &Search, py::arg("table"), py::kw_only(), py::arg("workers"),
              py::arg("pins") = defaults.pins, py::arg("mode") = defaults.mode,
              py::arg("parts") = defaults.parts,
              py::arg("allow_replication") = defaults.allow_replication,
              py::arg("tie_updates") = defaults.tie_updates,
              py::arg("equal_tiles") = defaults.equal_tiles,
              py::arg("memory_limit") = defaults.memory_limit_bytes,
              py::arg("coarsen") = defaults.coarsen,
              py::arg("time_limit_s") = defaults.time_limit_s,
              py::arg("objective") = defaults.objective.name,
              py::arg("time") = py::none(), py::arg("on_pass") = py::none(),
              py::arg("on_progress") = py::none(), "Search a plan.");
  module->def("plan_frontier", &SearchFrontier, py::arg("table"), py::kw_only(),
              py::arg("workers"), py::arg("pins") = defaults.pins,
              py::arg("mode") = defaults.mode, py::arg("parts") = defaults.parts,
              py::arg("tie_updates") = defaults.tie_updates,
              py::arg("equal_tiles") = defaults.equal_tiles, py::arg("searches"),
              py::arg("time_limit_s") = defaults.time_limit_s,
              py::arg("objective") = defaults.objective.name,
              py::arg("time") = py::none(), py::arg("on_progress") = py::none(),
              "Search the plans that trade cost against memory.");
}

}  // namespace tofu
