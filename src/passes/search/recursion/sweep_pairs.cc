#include "passes/search/recursion/sweep_pairs.h"

#include <utility>

namespace tofu {
namespace {

constexpr size_t kMaxPairAlternatives = 128;
constexpr int64_t kMaxPairCells = int64_t{1} << 19;
constexpr int kMaxPairSearches = 40;

}  // namespace

Solution SweepPairs(const PlanProblem& problem, Solution best) {
  SearchOptions options = CommonOptions(problem);
  options.method = SolveBy::kBranch;
  options.max_alternatives = kMaxPairAlternatives;
  options.max_cells = kMaxPairCells;
  options.max_nodes = 1;
  const size_t steps = problem.parts().size();
  int left = kMaxPairSearches;
  size_t unchanged = 0;
  for (size_t i = 0; unchanged < steps * steps; i = (i + 1) % (steps * steps)) {
    ++unchanged;
    if (i / steps >= i % steps) continue;
    if (--left < 0 || best.IsProven() || IsPast(problem.options.deadline)) break;
    Tell(problem, best, "deciding two steps again");
    ClassCuts cuts = best.cuts;
    FreeStep(problem, i / steps, &cuts);
    FreeStep(problem, i % steps, &cuts);
    SearchResult result = problem.searcher->Search(cuts, options);
    if (result.status == EliminateStatus::kTooBig || result.cost >= best.cost) continue;
    best = Cheaper(std::move(best), std::move(result));
    unchanged = 0;
  }
  return best;
}

}  // namespace tofu
