// Solves a LimitedProblem: proven optima where time allows, and at any moment the best
// choice so far, a lower bound, and so the gap between them.
//
//   1. merge_classes      variables that determine each other become one
//   2. reduce_core        dominated and impossible values, low degrees, moments
//   3. components         parts that share no table and no moment, equal ones once
//   4. eliminate_core     where no memory is left and the width allows
//   5. branch_and_bound   bounds from dual_ascent and raise_bound, incumbents from
//                         local_search and improve_choice (large neighbourhoods)
//
// Input:      a problem.
// Output:     values, cost, bound and status. Where the limit leaves no choice,
// least_limit.h
//             says which one would.
// Interrupted: by the deadline, or by a callback that returns false; then the best so
// far. Determinism: equal problems give equal results for any number of threads, unless
// the
//             deadline ends the search.
// Errors:     none.
// Complexity: exponential in the worst case. Before branching: O(cells) and some thousand
//             sweeps over what is left.
#ifndef TOFU_SOLVER_SOLVE_H_
#define TOFU_SOLVER_SOLVE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "solver/deadline.h"
#include "solver/limited_problem.h"

namespace tofu {

struct SolveProgress {
  int64_t cost = kForbidden;  // of the best choice so far
  int64_t bound = 0;          // no choice costs less
  // Of the best choice, where it is new; null where only the bound is.
  const std::vector<int>* values = nullptr;
};

struct SolveOptions {
  Deadline deadline = Deadline::max();
  int threads = 1;
  int64_t max_nodes = std::numeric_limits<int64_t>::max();  // of branch_and_bound, a part
  int64_t top = kForbidden;  // only cheaper choices are looked for
  // Called with every better choice or bound, and often with neither; false ends the
  // search.
  std::function<bool(const SolveProgress&)> on_progress;
};

enum class SolveStatus {
  kOptimal,
  kFeasible,    // the gap is open
  kInfeasible,  // no choice is allowed, fits and costs less than the top
  kUnknown      // neither a choice nor a proof that there is none
};

struct SolveResult {
  SolveStatus status = SolveStatus::kUnknown;
  std::vector<int> values;  // empty: none found
  int64_t cost = kForbidden;
  int64_t bound = 0;
  int64_t nodes = 0;
};

SolveResult Solve(const LimitedProblem& problem, const SolveOptions& options);

}  // namespace tofu

#endif  // TOFU_SOLVER_SOLVE_H_
