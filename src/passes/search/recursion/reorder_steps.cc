#include "passes/search/recursion/reorder_steps.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "passes/search/recursion/sweep_steps.h"

namespace tofu {
namespace {

constexpr int kMaxOrdersTried = 24;

bool IsPossible(const PlanProblem& problem, const std::vector<size_t>& order) {
  const std::vector<int>& parts = problem.parts();
  for (size_t i = 0; i < order.size(); ++i) {
    if (parts[order[i]] != parts[i]) return false;
  }
  return IsNothingGiven(problem.options.given);
}

ClassCuts Permuted(ClassCuts cuts, const std::vector<size_t>& order) {
  for (std::vector<Cuts>* list : {&cuts.tensors, &cuts.operators}) {
    for (Cuts& one : *list) {
      const Cuts old = one;
      for (size_t i = 0; i < order.size() && !old.empty(); ++i) one[i] = old[order[i]];
    }
  }
  return cuts;
}

}  // namespace

Solution ReorderSteps(const PlanProblem& problem, Solution best) {
  if (best.IsProven()) return best;
  const ClassCuts start = best.cuts;
  int searches_left = kMaxSearches;
  std::vector<size_t> order(problem.parts().size());
  std::iota(order.begin(), order.end(), 0);
  best = SweepSteps(problem, start, 1, &searches_left, std::move(best));
  for (int tried = 1; tried < kMaxOrdersTried && searches_left > 0; ++tried) {
    if (best.IsProven() || IsPast(problem.options.deadline)) return best;
    if (!std::next_permutation(order.begin(), order.end())) break;
    if (!IsPossible(problem, order)) continue;
    best =
        SweepSteps(problem, Permuted(start, order), 1, &searches_left, std::move(best));
  }
  ClassCuts cuts = best.cuts;
  return SweepSteps(problem, std::move(cuts), kMaxSweeps, &searches_left,
                    std::move(best));
}

}  // namespace tofu
