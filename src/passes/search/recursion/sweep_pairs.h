// Decides every two steps again together, given the others, until none gets cheaper.
//
// Input:      a problem of two steps or more, and a solution.
// Output:     a solution that costs no more.
// Errors:     none.
// Position:   last of the improvers (recursive_search.h): its searches are the largest.
// Complexity: kMaxPairSearches searches of step_search.h; pairs with too many
//             alternatives stay as they are.
#ifndef TOFU_PASSES_SEARCH_RECURSION_SWEEP_PAIRS_H_
#define TOFU_PASSES_SEARCH_RECURSION_SWEEP_PAIRS_H_

#include "passes/search/recursion/plan_problem.h"

namespace tofu {

Solution SweepPairs(const PlanProblem& problem, Solution best);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSION_SWEEP_PAIRS_H_
