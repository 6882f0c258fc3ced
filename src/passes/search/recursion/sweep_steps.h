// Decides every step again, given the others, until none gets cheaper.
//
// Input:      the cuts to start from, which may cost more than the best solution; the
//             most sweeps over all steps; the number of searches left.
// Output:     the cheapest solution; the number of searches left then.
// Errors:     none.
// Position:   one of the improvers (recursive_search.h); reorder_steps.h uses it for
//             every order.
// Complexity: one search of step_search.h for each step and sweep.
#ifndef TOFU_PASSES_SEARCH_RECURSION_SWEEP_STEPS_H_
#define TOFU_PASSES_SEARCH_RECURSION_SWEEP_STEPS_H_

#include "passes/search/recursion/plan_problem.h"

namespace tofu {

constexpr int kMaxSweeps = 8;     // over all steps
constexpr int kMaxSearches = 24;  // in all sweeps together

Solution SweepSteps(const PlanProblem& problem, ClassCuts start, int sweeps,
                    int* searches_left, Solution best);

// Sweeps kMaxSweeps times, from the best solution itself.
Solution SweepSteps(const PlanProblem& problem, Solution best);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSION_SWEEP_STEPS_H_
