// Searches the plan with the least cost whose tiles stay within a memory limit.
//
// Every step is decided again, given the others, within the limit, until nothing
// improves. Where that is a small problem, all steps are also decided together, which is
// exact: up to two steps first, more of them only to find what the sweeps miss.
//
// Input:      a problem with a limit; a solution to start from, within the limit or not.
// Output:     the best solution within the limit, with a bound of all such plans; where
//             none was found, the start.
// Errors:     none.
// Position:   after the searches without a limit, one of the improvers
//             (recursive_search.h).
// Complexity: kMaxSweeps * steps searches of one step (solve.h, with a fixed number of
//             nodes): equal input, equal output unless the deadline ends it.
#ifndef TOFU_PASSES_SEARCH_MEMORY_SEARCH_H_
#define TOFU_PASSES_SEARCH_MEMORY_SEARCH_H_

#include "passes/search/plan_problem.h"

namespace tofu {

Solution FitMemory(const PlanProblem& problem, Solution start);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_MEMORY_SEARCH_H_
