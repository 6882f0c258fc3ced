#include "passes/search/recursion/decide_together.h"

#include <utility>

#include "base/error.h"
#include "passes/search/recursion/dump.h"

namespace tofu {
namespace {

// Cells to fill: minutes.
constexpr int64_t kMaxCells = int64_t{1} << 33;

}  // namespace

Solution DecideTogether(const PlanProblem& problem) {
  const RecursiveOptions& wish = problem.options;
  Solution solution;
  Tell(problem, solution, "all steps at once");
  SearchOptions options = CommonOptions(problem);
  options.max_cells = kMaxCells;
  options.tables_deadline = wish.deadline;
  if (wish.method == Method::kGreedy) options.method = SolveBy::kGreedy;
  SearchResult found = problem.searcher->Search(wish.given, options);
  TOFU_CHECK_USER(found.status != EliminateStatus::kTooBig, Blame::kPlan)
      << "plan: found a problem that is too large for a search over all "
      << wish.parts.size() << " steps at once, expected one that its tables hold within "
      << "the time limit; raise the limit or choose mode \"tofu\", which goes step by "
      << "step";
  solution.has_optimal_steps =
      wish.is_proven && found.status == EliminateStatus::kOptimal;
  solution.lower_bound = wish.is_proven ? found.lower_bound : 0;
  solution.cost = found.cost;
  if (wish.on_search) {
    wish.on_search("search all steps", DumpSearch(problem.coarse, found, wish.parts, 0,
                                                  problem.model().unit()));
  }
  solution.cuts = std::move(found.cuts);
  return solution;
}

}  // namespace tofu
