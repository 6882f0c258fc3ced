// Searches the plan with the least cost whose tiles stay within a memory limit.
//
// Decides every step again, given the others, within the limit, until nothing improves.
// If the problem of all steps is small, also solves it, which is exact: before the sweeps
// for at most two steps, else after them, to find plans that they miss.
//
// Input:      a problem with a limit; a solution to start from, within the limit or not.
// Output:     the best solution within the limit, with a bound of all such plans; the
//             start if none was found.
// Errors:     none.
// Position:   after the searches without a limit, one of the improvers
//             (recursive_search.h).
// Complexity: kMaxMemorySweeps * steps searches of one step (solve.h, with a fixed number
//             of nodes): equal input, equal output unless the deadline ends it.
#ifndef TOFU_PASSES_SEARCH_RECURSION_MEMORY_SEARCH_H_
#define TOFU_PASSES_SEARCH_RECURSION_MEMORY_SEARCH_H_

#include "passes/search/recursion/plan_problem.h"

namespace tofu {

Solution FitMemory(const PlanProblem& problem, Solution start);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSION_MEMORY_SEARCH_H_
