#include "passes/search/step_problem.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/recursion/step_search.h"
#include "passes/search/tilings/class_cuts.h"

namespace tofu {
namespace {

constexpr const char* kFormat = "tofu-step-problem";
constexpr int kStepProblemVersion = 1;

// The first steps of `cuts`, then one that is free.
Cuts FreeAfter(const std::vector<int>& cuts, int steps) {
  Cuts given(cuts.begin(), cuts.begin() + steps);
  given.push_back(kFree);
  return given;
}

}  // namespace

ChoiceProblem StepProblem(const Graph& graph, const StrategyTable& table,
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

std::string WriteStepProblem(const ChoiceProblem& problem) {
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"version", kStepProblemVersion},
                                 {"constant", problem.constant},
                                 {"domains", problem.domain},
                                 {"unary", problem.unary}};
  json["pairs"] = nlohmann::ordered_json::array();
  for (const ChoiceProblem::Pair& pair : problem.pairs) {
    json["pairs"].push_back(
        nlohmann::ordered_json::array({pair.a, pair.b, pair.cost.vector()}));
  }
  return json.dump();
}

}  // namespace tofu
