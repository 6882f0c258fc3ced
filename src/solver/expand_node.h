// Expands a node of branch_and_bound: raises its bound, and divides it if that does not
// close it.
//
//   1. Remove values that do not fit in the remaining memory or that the bound rules out.
//   2. Raise the bound with prices and sweeps, for `rounds` rounds (raise_bound.h). Every
//      few rounds, repair the choice that a sweep rounds to (local_search.h).
//   3. Once two fifths of the values are gone, reduce the core (reduce_core.h), and
//      eliminate it if it has no memory limits and little width; then start again at 1.
//   4. Probe divisions of the variables that the rounds decided least unanimously: divide
//      each around its two most frequent values, and raise both halves' bounds for a few
//      rounds. If that closes a half, start again at 1 with the other half.
//      Otherwise take the division whose bounds rose most.
//
// Input:      a node; the top: only choices that cost less are of interest.
// Output:     the best choice found below the top; two children, or none if the node is
//             closed; the node itself if the deadline ended the work.
// Position:   called by branch_and_bound, for several nodes at a time in several threads.
// Complexity: `rounds` + 2 * 8 * 6 rounds of two sweeps, and some reductions.
#ifndef TOFU_SOLVER_EXPAND_NODE_H_
#define TOFU_SOLVER_EXPAND_NODE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "solver/dual_ascent.h"
#include "solver/problem/choice_problem.h"
#include "solver/problem/deadline.h"

namespace tofu {

// A core that nodes share, and the lift of its values to the given core.
struct SearchPart {
  SearchPart(ChoiceProblem given, Lift given_lift, int64_t top)
      : core(std::move(given)), lift(std::move(given_lift)), ascent(core, top) {
    num_values = ascent.first_value(core.num_variables());
    for (const ChoiceProblem::Pair& pair : core.pairs) num_cells += pair.cost.size();
  }

  ChoiceProblem core;
  Lift lift;
  DualAscent ascent;
  int num_values;
  size_t num_cells = 0;
};

struct SearchNode {
  std::shared_ptr<const SearchPart> part;
  DualState state;
  int depth = 0;
  int rounds = 16;
  int64_t number = 0;

  int64_t known_bound = 0;  // of the parent node

  int64_t bound() const { return std::max(known_bound, part->ascent.Bound(state)); }
};

struct FoundChoice {
  std::vector<int> values;
  int64_t cost = kForbidden;
};

struct ExpandOptions {
  int64_t top = kForbidden;
  double root_elimination_work = 0;  // additions; 0: the root is not eliminated
  Deadline deadline = Deadline::max();
  // Called with better choices and the node's current bound; false ends the work.
  std::function<bool(const FoundChoice*, int64_t bound)> listener;
};

struct Expanded {
  FoundChoice best;  // has no values if none was found
  std::vector<SearchNode> children;
  std::optional<SearchNode> open;  // the node, if the deadline ended the work
  double work = 0;                 // rounds of the ascent times the problem's cells
};

Expanded ExpandNode(SearchNode node, const ExpandOptions& options);

}  // namespace tofu

#endif  // TOFU_SOLVER_EXPAND_NODE_H_
