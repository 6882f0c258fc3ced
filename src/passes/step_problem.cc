#include "passes/step_problem.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "graph/error.h"
#include "passes/coalesce.h"
#include "passes/group.h"
#include "passes/search.h"

namespace tofu {
namespace {

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
  const CoarseGraph coarse = Coalesce(graph, table, GroupForwardBackward(graph, table));
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
  nlohmann::ordered_json json = {{"format", "tofu-step-problem"},
                                 {"version", 1},
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

}  // namespace tofu
