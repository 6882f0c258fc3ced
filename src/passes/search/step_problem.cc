#include "passes/search/step_problem.h"

#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/class_cuts.h"
#include "passes/search/step_search.h"

namespace tofu {
namespace {

constexpr const char* kFormat = "tofu-step-problem";
constexpr int kVersion = 1;
constexpr int kMaxDomain = 1 << 20;
constexpr int64_t kMaxCost = int64_t{1} << 50;

std::vector<int64_t> ReadCells(const JsonCursor& cursor, int64_t expected) {
  std::vector<int64_t> cells;
  for (int i = 0; i < cursor.Size(); ++i) cells.push_back(cursor.At(i).Int(0, kMaxCost));
  if (static_cast<int64_t>(cells.size()) != expected) {
    cursor.Fail("an array of " + std::to_string(expected) + " costs");
  }
  return cells;
}

// The first steps of `cuts`, then one that is free.
Cuts FreeAfter(const std::vector<int>& cuts, int steps) {
  Cuts given(cuts.begin(), cuts.begin() + steps);
  given.push_back(kFree);
  return given;
}

}  // namespace

PairwiseProblem StepProblem(const Graph& graph, const StrategyTable& table,
                            const Plan& plan, int step) {
  const int steps = static_cast<int>(plan.parts.size());
  TOFU_CHECK_USER(step >= 0 && step < steps, Blame::kPlan)
      << "step problem: found step " << step << ", expected 0 to " << steps - 1
      << "; the plan has " << steps << " steps";
  const CoarseGraph coarse = ClassesOf(graph, table, plan);
  ClassCuts given;
  for (const TensorClass& tensor : coarse.tensors) {
    given.tensors.push_back(FreeAfter(plan.tensor_cuts[tensor.entries[0]], step));
  }
  for (const OpClass& op : coarse.operators) {
    given.operators.push_back(FreeAfter(plan.op_cuts[op.nodes[0]], step));
  }
  return PartitionSearcher(graph, table, coarse, plan.parts, {}).Problem(given);
}

std::string WriteStepProblem(const PairwiseProblem& problem) {
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"version", kVersion},
                                 {"constant", problem.constant},
                                 {"domains", problem.domain},
                                 {"unary", problem.unary}};
  json["pairs"] = nlohmann::ordered_json::array();
  for (const PairwiseProblem::Pair& pair : problem.pairs) {
    json["pairs"].push_back(
        nlohmann::ordered_json::array({pair.a, pair.b, pair.cost.vector()}));
  }
  return json.dump();
}

PairwiseProblem ReadStepProblem(const std::string& text) {
  const JsonDocument document =
      ParseJson(text, Blame::kPlan, "step problem", "write it again with step_problem");
  const JsonCursor root(document);
  if (root.At("format").String() != kFormat) {
    root.At("format").Fail('"' + std::string(kFormat) + '"');
  }
  root.At("version").Int(kVersion, kVersion);
  PairwiseProblem problem;
  problem.constant = root.At("constant").Int(0, kMaxCost);
  const JsonCursor domains = root.At("domains");
  for (int v = 0; v < domains.Size(); ++v) {
    problem.AddVariable(static_cast<int>(domains.At(v).Int(1, kMaxDomain)));
  }
  const int num_variables = static_cast<int>(problem.domain.size());
  const JsonCursor unary = root.At("unary");
  if (unary.Size() != num_variables) {
    unary.Fail("an array of " + std::to_string(num_variables) + ", one per variable");
  }
  for (int v = 0; v < num_variables; ++v) {
    const JsonCursor cells = unary.At(v);
    if (cells.Size() > 0) problem.unary[v] = ReadCells(cells, problem.domain[v]);
  }
  const JsonCursor pairs = root.At("pairs");
  for (int i = 0; i < pairs.Size(); ++i) {
    const JsonCursor pair = pairs.At(i);
    const int a = pair.At(0).Index(num_variables);
    const int b = pair.At(1).Index(num_variables);
    if (a == b) pair.At(1).Fail("another variable than the pair's first");
    const int64_t cells = int64_t{problem.domain[a]} * problem.domain[b];
    problem.pairs.push_back({a, b, ReadCells(pair.At(2), cells)});
  }
  return problem;
}

std::string SolveStepProblem(const std::string& text) {
  const PairwiseProblem problem = ReadStepProblem(text);
  const std::clock_t begin = std::clock();
  const EliminateResult result = Eliminate(problem, {});
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const bool optimal = result.status == EliminateStatus::kOptimal;
  return nlohmann::ordered_json({{"cost", result.cost},
                                 {"lower_bound", result.lower_bound},
                                 {"status", optimal ? "optimal" : "feasible"},
                                 {"values", result.values},
                                 {"cpu_seconds", seconds}})
      .dump();
}

}  // namespace tofu
