// Decides one step after the other, as the paper does (section 5.2): step i given steps
// 1 .. i-1.
//
// Later steps only add to what the first one needs: their groups are parts of its groups,
// and a part of a group that owns no more has to fetch no less. So the first step's
// optimum bounds every plan, unless operators reduce an output in different ways, or skip
// elements, or cost something by themselves (cost_model.h).
//
// Input:      a problem without a solution.
// Output:     the first solution.
// Errors:     none.
// Position:   first of the improvers (recursive_search.h).
// Complexity: one search of step_search.h for each step.
#ifndef TOFU_PASSES_SEARCH_RECURSION_DECIDE_STEPS_H_
#define TOFU_PASSES_SEARCH_RECURSION_DECIDE_STEPS_H_

#include "passes/search/recursion/plan_problem.h"

namespace tofu {

Solution DecideSteps(const PlanProblem& problem);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSION_DECIDE_STEPS_H_
