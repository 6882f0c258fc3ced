#include "passes/search/recursion/sweep_steps.h"

#include <limits>
#include <utility>

namespace tofu {
namespace {

void Restore(size_t step, const std::vector<int>& before, ClassCuts* cuts) {
  size_t next = 0;
  for (std::vector<Cuts>* list : {&cuts->tensors, &cuts->operators}) {
    for (Cuts& one : *list) one[step] = before[next++];
  }
}

}  // namespace

Solution SweepSteps(const PlanProblem& problem, ClassCuts start, int sweeps,
                    int* searches_left, Solution best) {
  const size_t steps = problem.parts().size();
  ClassCuts cuts = std::move(start);
  int64_t cost = std::numeric_limits<int64_t>::max();
  size_t unchanged = 0;
  for (size_t i = 0; i < sweeps * steps; ++i) {
    const bool is_over = *searches_left <= 0 || IsPast(problem.options.deadline);
    if (unchanged == steps || is_over) break;
    --*searches_left;
    Tell(problem, best, "deciding each step again");
    const std::vector<int> before = FreeStep(problem, i % steps, &cuts);
    SearchResult result = problem.searcher->Search(cuts, CommonOptions(problem));
    unchanged = result.cost < cost ? 0 : unchanged + 1;
    if (result.cost >= cost) {
      Restore(i % steps, before, &cuts);
      continue;
    }
    cost = result.cost;
    cuts = result.cuts;
    best = Cheaper(std::move(best), std::move(result));
  }
  return best;
}

Solution SweepSteps(const PlanProblem& problem, Solution best) {
  if (best.IsProven()) return best;
  int searches_left = kMaxSearches;
  ClassCuts start = best.cuts;
  return SweepSteps(problem, std::move(start), kMaxSweeps, &searches_left,
                    std::move(best));
}

}  // namespace tofu
