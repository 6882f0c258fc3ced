// Decides all steps of a plan together, and bounds what any plan costs.
//
//   1. Profiles. The problem in which only profiles are chosen (patterns.h) bounds every
//      plan: each table of it is at most the table of any orders. It is small for any
//      number of workers.
//   2. Refinement, if few steps may trade places. The profiles that the bound's optimum
//      chose are replaced by their cuts, whose costs are exact, and the problem is solved
//      again, by elimination. The bound rises until the optimum consists of cuts alone: a
//      plan, and none is cheaper. Most profiles are never replaced. A search of other
//      classes of the same graph starts with the profiles that the first one replaced.
//   3. Optimum. Otherwise the problem of all orders is solved if it is not too large.
//   4. Restriction. If it is too large, tensors keep only the profiles that a plan
//      cheaper than the best one may have, as the profiles' reduced costs prove, and that
//      problem is solved. It leaves out no better plan, so its optimum or the best plan
//      is the optimum of all.
//
// Input:      the decisions given for every step; the best plan's cost.
// Output:     a bound of all plans; a plan, if one was found that costs no more.
// Errors:     none.
// Position:   after all steps are decided, one of the improvers (recursive_search.h).
// Complexity: solve.h, with fixed numbers of nodes and cells: equal input, equal output.
#ifndef TOFU_PASSES_SEARCH_RECURSION_JOINT_SEARCH_H_
#define TOFU_PASSES_SEARCH_RECURSION_JOINT_SEARCH_H_

#include <cstdint>
#include <optional>

#include "passes/search/recursion/plan_problem.h"
#include "passes/search/recursion/progress.h"
#include "passes/search/recursion/step_search.h"

namespace tofu {

struct JointOptions {
  Deadline deadline = Deadline::max();
  int64_t best_cost = 0;
  bool is_quick = false;  // only a small problem of all orders, and no profiles
  int64_t quick_cells = int64_t{1} << 17;  // most cells to fill for it
  // Where the refinement starts: profiles that an earlier search told apart, and the best
  // plan. Null: neither.
  const KnownProfiles* known = nullptr;
  const ClassCuts* best = nullptr;
  ProgressCallback on_progress;
};

struct JointResult {
  int64_t lower_bound = 0;
  std::optional<SearchResult> found;
  KnownProfiles known;  // profiles told apart
};

// The options of the search that bounds all plans by their profiles.
SearchOptions ProfileSearch(Deadline deadline);

JointResult SearchJointly(const ClassCuts& given, const JointOptions& options,
                          PartitionSearcher* searcher);

// SearchJointly as an improver (plan_problem.h).
Solution ImproveJointly(const PlanProblem& problem, Solution best,
                        int64_t quick_cells = JointOptions().quick_cells);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSION_JOINT_SEARCH_H_
