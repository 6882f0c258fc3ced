#include "passes/search/recursion/plan_problem.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "passes/search/cost/plan_bytes.h"
#include "passes/search/cost/slot_bytes.h"

namespace tofu {
namespace {

Cuts NodeCuts(const PlanProblem& problem, const ClassCuts& cuts, int node) {
  const int p = problem.coarse.op_class[node];
  if (p < 0) return Cuts(problem.parts().size(), kReplicated);
  const OpClass& op = problem.coarse.operators[p];
  if (!op.elementwise) return cuts.operators[p];
  return ElementwiseCuts(*problem.table.row(node), cuts.tensors[op.follows]);
}

}  // namespace

SearchOptions CommonOptions(const PlanProblem& problem) {
  SearchOptions options;
  options.eliminate.max_table = problem.options.max_table;
  options.eliminate.deadline = problem.options.deadline;
  return options;
}

bool IsNothingGiven(const ClassCuts& given) {
  for (const std::vector<Cuts>* list : {&given.tensors, &given.operators}) {
    for (const Cuts& cuts : *list) {
      for (int cut : cuts) {
        if (cut != kFree) return false;
      }
    }
  }
  return true;
}

std::vector<int> FreeStep(const PlanProblem& problem, size_t step, ClassCuts* cuts) {
  const ClassCuts& given = problem.options.given;
  std::vector<int> before;
  before.reserve(cuts->tensors.size() + cuts->operators.size());
  for (size_t c = 0; c < cuts->tensors.size(); ++c) {
    before.push_back(cuts->tensors[c][step]);
    cuts->tensors[c][step] = given.tensors[c][step];
  }
  for (size_t p = 0; p < cuts->operators.size(); ++p) {
    before.push_back(cuts->operators[p][step]);
    cuts->operators[p][step] = given.operators[p][step];
  }
  return before;
}

Solution Cheaper(Solution best, SearchResult found) {
  if (found.cost >= best.cost) return best;
  best.cuts = std::move(found.cuts);
  best.cost = found.cost;
  return best;
}

void Tell(const PlanProblem& problem, const Solution& best, const std::string& stage) {
  if (!problem.options.on_progress) return;
  problem.options.on_progress({stage, best.cost, best.lower_bound});
}

Plan ToPlan(const PlanProblem& problem, const Solution& solution) {
  Plan plan;
  plan.parts = problem.parts();
  plan.status = solution.IsProven()          ? PlanStatus::kOptimal
                : solution.has_optimal_steps ? PlanStatus::kStepsOptimal
                                             : PlanStatus::kFeasible;
  for (int tensor : problem.coarse.tensor_class) {
    plan.tensor_cuts.push_back(solution.cuts.tensors[tensor]);
  }
  for (int node = 0; node < problem.graph.num_nodes(); ++node) {
    plan.op_cuts.push_back(NodeCuts(problem, solution.cuts, node));
  }
  SetPlanBytes(problem.graph, problem.table, problem.coarse, solution.cuts, &plan);
  problem.model().Describe(solution.cuts, &plan);
  plan.SetLowerBound(std::min(solution.lower_bound, solution.cost));
  TOFU_CHECK(plan.cost() == solution.cost) << "the plan's operators cost " << plan.cost()
                                           << ", the search found " << solution.cost;
  return plan;
}

}  // namespace tofu
