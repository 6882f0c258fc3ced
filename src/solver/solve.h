// Solves a ChoiceProblem: finds proven optima if time allows, and at any time has the
// best choice so far and a lower bound.
//
//   1. merge_classes      merge variables that determine each other
//   2. reduce_core        remove dominated and impossible values, variables of low
//                         degree, and moments that do not matter
//   3. split_core         solve parts that share no table and no moment separately, and
//                         equal parts once
//   4. eliminate_core     solve parts without memory limits exactly if their width allows
//   5. branch_and_bound   bounds from dual_ascent and raise_bound, incumbents from
//                         local_search and improve_choice (large neighbourhoods)
//
// Input:       a problem.
// Output:      values, cost, bound and status. If the limit leaves no choice,
//              least_limit.h finds one that does.
// Interrupted: by the deadline, or by a callback that returns false; the result is then
//              the best choice so far.
// Determinism: equal problems give equal results for any number of threads, unless the
//              deadline ends the search.
// Errors:      none.
// Complexity:  exponential in the worst case. Before branching: O(cells) and a few
//              thousand sweeps over the reduced problem.
#ifndef TOFU_SOLVER_SOLVE_H_
#define TOFU_SOLVER_SOLVE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "solver/problem/choice_problem.h"
#include "solver/problem/deadline.h"
#include "solver/solve_cache.h"

namespace tofu {

struct SolveProgress {
  int64_t cost = kForbidden;  // cost of the best choice so far
  int64_t bound = 0;          // no choice costs less
  // The best choice, if it is new; null if only the bound is new.
  const std::vector<int>* values = nullptr;
};

struct SolveOptions {
  Deadline deadline = Deadline::max();
  int threads = 1;
  int64_t max_nodes = std::numeric_limits<int64_t>::max();  // per part
  // The limit of rounds of the ascent times the cells of a part, over all nodes.
  double max_work = std::numeric_limits<double>::infinity();
  // Additions to eliminate a part before any bounds: a thirtieth of a second.
  double elimination_work = 4e7;
  // The same, if bounds leave a gap. Equal tables, which are many, count once.
  double late_elimination_work = 3e9;
  int64_t top = kForbidden;     // looks only for choices that cost less
  SolveCache* cache = nullptr;  // shared by problems with equal tables; null: none
  // Called with every better choice or bound, and often with neither. Returning false
  // ends the search.
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
  std::vector<int> values;  // empty: no choice found
  int64_t cost = kForbidden;
  int64_t bound = 0;
  int64_t nodes = 0;
  double work = 0;  // as in max_work, of all parts
};

SolveResult Solve(const ChoiceProblem& problem, const SolveOptions& options);

}  // namespace tofu

#endif  // TOFU_SOLVER_SOLVE_H_
