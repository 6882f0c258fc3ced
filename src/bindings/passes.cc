#include "bindings/passes.h"

#include <pybind11/stl.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/partition/partition.h"
#include "passes/partition/partitioned.h"
#include "passes/schedule/control_deps.h"
#include "passes/schedule/join_phases.h"
#include "passes/schedule/phases.h"
#include "passes/schedule/step_graphs.h"
#include "passes/search/explain.h"
#include "passes/search/make_plan.h"
#include "passes/search/modes.h"
#include "passes/search/step_problem.h"

namespace py = pybind11;

namespace tofu {
namespace {

// Texts are copied out of Python before, and back into it after, the lock is
// released; only the callback takes it again.
using Callback = std::optional<py::function>;

void Call(const Callback& on_pass, const std::string& name, const std::string& dump) {
  py::gil_scoped_acquire lock;
  (*on_pass)(name, dump);
}

std::string PlanPartition(const std::string& graph_json, const std::string& table_json,
                          const PlanOptions& options, const Callback& on_pass) {
  py::gil_scoped_release unlock;
  const Graph graph = ReadGraph(graph_json);
  const StrategyTable table = ReadStrategyTable(table_json, graph);
  PassCallback callback;
  if (on_pass) {
    callback = [&on_pass](const std::string& name, const std::string& dump) {
      Call(on_pass, name, dump);
    };
  }
  return WritePlan(MakePlan(graph, table, options, callback), graph, table);
}

std::string Partition(const std::string& graph_json, const std::string& table_json,
                      const std::string& plan_json,
                      const std::optional<std::vector<std::string>>& heads,
                      const std::string& fetch, bool share, bool control_deps,
                      bool delay_fetches, const Callback& on_pass) {
  py::gil_scoped_release unlock;
  const Graph graph = ReadGraph(graph_json);
  const StrategyTable table = ReadStrategyTable(table_json, graph);
  const Plan plan = ReadPlan(plan_json, graph, table);
  Partitioned partitioned =
      PartitionGraph(graph, table, plan, {heads, ParseFetchKind(fetch), share});
  if (control_deps) {
    AddControlDeps(&partitioned.graph, &partitioned.node_workers, delay_fetches);
  }
  if (on_pass) Call(on_pass, "partition", DumpGraph(partitioned.graph));
  return WritePartitioned(partitioned);
}

std::string ExplainName(const std::string& graph_json, const std::string& table_json,
                        const std::string& plan_json, const std::string& name) {
  py::gil_scoped_release unlock;
  const Graph graph = ReadGraph(graph_json);
  const StrategyTable table = ReadStrategyTable(table_json, graph);
  return Explain(graph, table, ReadPlan(plan_json, graph, table), name);
}

std::string SplitIntoPhases(const std::string& partitioned_json, bool joint,
                            bool control_deps, const Callback& on_pass) {
  py::gil_scoped_release unlock;
  Phases phases = SplitPhases(ReadPartitioned(partitioned_json));
  ArrangePhases(&phases, control_deps);
  if (on_pass) Call(on_pass, "phases", DumpPhases(phases));
  if (joint && phases.backward) return WriteJoint(phases, JoinPhases(phases));
  return WritePhases(phases);
}

std::string ProblemOfStep(const std::string& graph_json, const std::string& table_json,
                          const std::string& plan_json, int step) {
  py::gil_scoped_release unlock;
  const Graph graph = ReadGraph(graph_json);
  const StrategyTable table = ReadStrategyTable(table_json, graph);
  const Plan plan = ReadPlan(plan_json, graph, table);
  return WriteStepProblem(StepProblem(graph, table, plan, step));
}

std::string SolveStep(const std::string& problem_json) {
  py::gil_scoped_release unlock;
  return SolveStepProblem(problem_json);
}

std::string HashOf(const std::string& graph_json) {
  py::gil_scoped_release unlock;
  return GraphHash(ReadGraph(graph_json));
}

}  // namespace

void BindPasses(py::module_* module) {
  module->attr("expected_table_version") = kStrategyTableVersion;
  module->attr("search_modes") = SearchModes();
  const PlanOptions defaults;
  module->def(
      "plan",
      [](const std::string& graph, const std::string& table, int workers,
         const std::map<std::string, std::vector<int>>& pins, const std::string& mode,
         const std::vector<int>& parts, bool allow_replication, bool coarsen, bool bound,
         double time_limit_s, const Callback& on_pass) {
        PlanOptions options;
        options.workers = workers;
        options.pins = pins;
        options.mode = mode;
        options.parts = parts;
        options.allow_replication = allow_replication;
        options.coarsen = coarsen;
        options.bound_jointly = bound;
        options.time_limit_s = time_limit_s;
        return PlanPartition(graph, table, options, on_pass);
      },
      py::arg("graph"), py::arg("table"), py::kw_only(), py::arg("workers"),
      py::arg("pins") = defaults.pins, py::arg("mode") = defaults.mode,
      py::arg("parts") = defaults.parts,
      py::arg("allow_replication") = defaults.allow_replication,
      py::arg("coarsen") = defaults.coarsen, py::arg("bound") = defaults.bound_jointly,
      py::arg("time_limit_s") = defaults.time_limit_s, py::arg("on_pass") = py::none(),
      "Search a plan (JSON) for a training graph.");
  module->def("partition", &Partition, py::arg("graph"), py::arg("table"),
              py::arg("plan"), py::kw_only(), py::arg("heads") = py::none(),
              py::arg("fetch") = "plain", py::arg("share") = true,
              py::arg("control_deps") = true, py::arg("delay_fetches") = true,
              py::arg("on_pass") = py::none(),
              "Generate the partitioned graph (JSON) of a training graph and its plan.");
  module->def("explain", &ExplainName, py::arg("graph"), py::arg("table"),
              py::arg("plan"), py::arg("name"),
              "What every other choice for a tensor or an operator would cost (JSON).");
  module->def("phases", &SplitIntoPhases, py::arg("partitioned"), py::kw_only(),
              py::arg("joint") = false, py::arg("control_deps") = true,
              py::arg("on_pass") = py::none(),
              "Split a partitioned graph into its forward and backward graphs (JSON).");
  module->def("step_problem", &ProblemOfStep, py::arg("graph"), py::arg("table"),
              py::arg("plan"), py::kw_only(), py::arg("step"),
              "The problem (JSON) that a step of a plan solves, given the steps before.");
  module->def("solve_step_problem", &SolveStep, py::arg("problem"),
              "Solve what step_problem wrote by the search's elimination (JSON).");
  module->def("graph_hash", &HashOf, py::arg("graph"),
              "Hash of a graph's structure, shapes and dtypes, 16 hexadecimal digits.");
}

}  // namespace tofu
