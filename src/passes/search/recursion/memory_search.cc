#include "passes/search/recursion/memory_search.h"

#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace tofu {
namespace {

constexpr size_t kMaxMemorySweeps = 4;
// Plans of more steps are decided together after the sweeps, and only if that is a small
// problem.
constexpr size_t kMaxJointSteps = 2;
constexpr size_t kMaxMemoryAlternatives = 128;
constexpr int64_t kMaxMemoryCells = int64_t{1} << 20;
constexpr int64_t kMaxMemoryNodes = 64;

using Found = std::optional<SearchResult>;

void Keep(SearchResult result, Found* best) {
  if (!*best || result.cost < (*best)->cost) *best = std::move(result);
}

// Looks for a plan that costs less. Returns a bound of all plans within the limit.
int64_t DecideTogether(const PlanProblem& problem, SearchOptions options, Found* best) {
  options.max_alternatives = kMaxMemoryAlternatives;
  options.max_cells = kMaxMemoryCells;
  if (*best) options.top = (*best)->cost;
  SearchResult result = problem.searcher->Search(problem.options.given, options);
  const int64_t bound = result.lower_bound;
  if (result.status == EliminateStatus::kTooBig) return *best ? bound : 0;
  Keep(std::move(result), best);
  return bound;
}

void SweepWithin(const PlanProblem& problem, const SearchOptions& options, ClassCuts cuts,
                 Found* best) {
  const size_t steps = problem.parts().size();
  int64_t cost = std::numeric_limits<int64_t>::max();
  size_t unchanged = 0;
  for (size_t i = 0; i < kMaxMemorySweeps * steps; ++i) {
    if (unchanged == steps || IsPast(options.eliminate.deadline)) return;
    ++unchanged;
    ClassCuts freed = cuts;
    FreeStep(problem, i % steps, &freed);
    SearchResult result = problem.searcher->Search(freed, options);
    if (result.status == EliminateStatus::kTooBig || result.cost >= cost) continue;
    cost = result.cost;
    cuts = result.cuts;
    unchanged = 0;
    Keep(std::move(result), best);
  }
}

}  // namespace

Solution FitMemory(const PlanProblem& problem, Solution start) {
  Tell(problem, start, "searching within the memory limit");
  SearchOptions options = CommonOptions(problem);
  options.memory = problem.options.memory;
  options.method = SolveBy::kBranch;
  options.max_nodes = kMaxMemoryNodes;
  Found best;
  int64_t bound = 0;
  const bool is_joint_first = problem.parts().size() <= kMaxJointSteps;
  if (is_joint_first) bound = DecideTogether(problem, options, &best);
  if (!best || best->cost > bound) SweepWithin(problem, options, start.cuts, &best);
  if (!is_joint_first && !IsPast(options.eliminate.deadline)) {
    bound = DecideTogether(problem, options, &best);
  }
  start.has_optimal_steps = false;
  start.lower_bound = bound;
  const std::vector<Cuts>& tiles = start.cuts.tensors;
  const bool fits =
      options.memory->PeakBytes(tiles, problem.parts()) <= options.memory->limit_bytes;
  if (best && (!fits || best->cost <= start.cost)) {
    start.cost = best->cost;
    start.cuts = std::move(best->cuts);
  }
  return start;
}

}  // namespace tofu
