// Tries other orders of the steps.
//
// Tiles are nested and contiguous, so the order of steps matters if a tensor is cut twice
// along a dimension, contrary to the paper's Theorem 1. Steps with equal parts may be
// reordered, as they still divide every extent. Sweeps each order once (sweep_steps.h),
// and the best order until it stops improving.
//
// Input:      a problem of two steps or more, and a solution.
// Output:     a solution that costs no more.
// Errors:     none.
// Position:   after the joint search, one of the improvers (recursive_search.h).
// Complexity: kMaxSearches searches of step_search.h.
#ifndef TOFU_PASSES_SEARCH_RECURSION_REORDER_STEPS_H_
#define TOFU_PASSES_SEARCH_RECURSION_REORDER_STEPS_H_

#include "passes/search/recursion/plan_problem.h"

namespace tofu {

Solution ReorderSteps(const PlanProblem& problem, Solution best);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSION_REORDER_STEPS_H_
