// Divides a problem until every part is solved or cannot contain a better choice.
//
// A node is a core with a state of its dual ascent, which gives its bound; expand_node.h
// describes how a node is closed or divided. Between batches of nodes, the search also
// tries neighbourhoods of the incumbent (improve_choice.h).
//
// Most nodes are chosen by the smallest bound, some by the greatest depth, in batches of
// fixed size. One thread expands each node of a batch, starting from the incumbent before
// the batch. So the answer does not depend on the number of threads.
//
// Input:      a reduced core; the top: only choices that cost less are of interest.
// Output:     the best choice found and a bound. `done` if nothing is left to divide;
//             then the choice is optimal, or there is none below the top.
// Stops:      at the deadline, after max_nodes or max_work, or when `on_progress`
//             returns false.
// Complexity: exponential in the worst case; a node costs dozens of sweeps.
#ifndef TOFU_SOLVER_BRANCH_AND_BOUND_H_
#define TOFU_SOLVER_BRANCH_AND_BOUND_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "solver/problem/choice_problem.h"
#include "solver/problem/deadline.h"

namespace tofu {

struct BranchOptions {
  int64_t top = kForbidden;
  int64_t max_nodes = std::numeric_limits<int64_t>::max();
  // The limit of rounds of the ascent times the problem's cells, over all nodes.
  double max_work = std::numeric_limits<double>::infinity();
  int root_rounds = 2000;
  double elimination_work = 0;  // additions to eliminate the root, before it is divided
  bool neighbourhoods = true;   // whether incumbents are improved by improve_choice.h
  int threads = 1;
  Deadline deadline = Deadline::max();
  // Called with a better choice (null: none) or a better bound, sometimes with neither.
  // The search ends if it returns false.
  std::function<bool(const std::vector<int>* values, int64_t bound)> on_progress;
};

struct BranchResult {
  std::vector<int> values;    // empty: no choice found below the top
  int64_t cost = kForbidden;  // of the values
  int64_t bound = 0;          // no choice costs less, unless it costs `top` or more
  bool done = false;
  int64_t nodes = 0;
  double work = 0;
};

BranchResult BranchAndBound(const ChoiceProblem& core, const BranchOptions& options);

}  // namespace tofu

#endif  // TOFU_SOLVER_BRANCH_AND_BOUND_H_
