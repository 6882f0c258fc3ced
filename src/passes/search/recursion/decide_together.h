// Decides all steps at once, exactly or greedily.
//
// Input:      a problem without a solution, whose method is kJoint or kGreedy.
// Output:     the solution.
// Errors:     UserError(kPlan) if the problem is too large.
// Position:   instead of the improvers (recursive_search.h), for modes that restrict
//             plans so much that all steps can be decided at once.
// Complexity: one search of step_search.h.
#ifndef TOFU_PASSES_SEARCH_RECURSION_DECIDE_TOGETHER_H_
#define TOFU_PASSES_SEARCH_RECURSION_DECIDE_TOGETHER_H_

#include "passes/search/recursion/plan_problem.h"

namespace tofu {

Solution DecideTogether(const PlanProblem& problem);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSION_DECIDE_TOGETHER_H_
