#include "passes/search/recursion/decide_steps.h"

#include <algorithm>
#include <string>
#include <utility>

#include "passes/search/recursion/dump.h"

namespace tofu {
namespace {

std::vector<int> Prefix(const std::vector<int>& parts, size_t steps) {
  return {parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(steps)};
}

// Whether no plan of all steps costs less than its first step. An operator that reduces
// an output in different ways may be whole at the first step of a plan although the
// first step by itself would split it. If operators skip elements, the first step also
// counts those between what later steps need.
bool DoFirstStepsBound(const PlanProblem& problem) {
  if (problem.model().CountsOperators()) return false;  // later steps may save some
  return std::none_of(
      problem.coarse.operators.begin(), problem.coarse.operators.end(),
      [&](const OpClass& op) {
        const int node = op.nodes[0];
        const StrategyRow* row = problem.table.row(node);
        return row != nullptr &&
               (MayMixReductions(*row) || MaySkipElements(problem.graph, *row, node));
      });
}

// Adds what is given of a step to the decisions of the earlier ones.
void AddStep(const ClassCuts& given, size_t step, ClassCuts* cuts) {
  for (size_t c = 0; c < cuts->tensors.size(); ++c) {
    cuts->tensors[c].push_back(given.tensors[c][step]);
  }
  for (size_t p = 0; p < cuts->operators.size(); ++p) {
    cuts->operators[p].push_back(given.operators[p][step]);
  }
}

}  // namespace

Solution DecideSteps(const PlanProblem& problem) {
  const std::vector<int>& parts = problem.parts();
  Solution solution;
  ClassCuts cuts;
  cuts.tensors.resize(problem.coarse.tensors.size());
  cuts.operators.resize(problem.coarse.operators.size());
  int64_t before = 0;
  for (size_t step = 0; step < parts.size(); ++step) {
    Tell(problem, solution,
         "step " + std::to_string(step + 1) + " of " + std::to_string(parts.size()));
    AddStep(problem.options.given, step, &cuts);
    SearchResult found = problem.searcher->Search(cuts, CommonOptions(problem));
    solution.has_optimal_steps &= found.status == EliminateStatus::kOptimal;
    if (step == 0 && (parts.size() == 1 || DoFirstStepsBound(problem))) {
      solution.lower_bound = found.lower_bound;
    }
    if (problem.options.on_search) {
      problem.options.on_search("search step " + std::to_string(step + 1),
                                DumpSearch(problem.coarse, found, Prefix(parts, step + 1),
                                           before, problem.model().unit()));
    }
    before = found.cost;
    cuts = std::move(found.cuts);
  }
  solution.cuts = std::move(cuts);
  solution.cost = before;
  return solution;
}

}  // namespace tofu
