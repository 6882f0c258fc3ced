// Decides every step again, given the others, until none gets cheaper.
//
// Input:      cuts to start from, which may cost anything, and the best solution; how
//             often to decide every step at most, and how many searches are left.
// Output:     the cheapest solution; fewer searches.
// Errors:     none.
// Position:   one of the improvers (recursive_search.h); reorder_steps.h uses it for
//             every order.
// Complexity: one search of step_search.h for each step and sweep.
#ifndef TOFU_PASSES_SEARCH_SWEEP_STEPS_H_
#define TOFU_PASSES_SEARCH_SWEEP_STEPS_H_

#include "passes/search/plan_problem.h"

namespace tofu {

constexpr int kMaxSweeps = 8;     // times to decide every step again
constexpr int kMaxSearches = 24;  // of all sweeps together

Solution SweepSteps(const PlanProblem& problem, ClassCuts start, int sweeps,
                    int* searches_left, Solution best);

// Sweeps kMaxSweeps times, from the best solution itself.
Solution SweepSteps(const PlanProblem& problem, Solution best);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_SWEEP_STEPS_H_
