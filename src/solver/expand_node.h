// Expands a node of branch_and_bound: raises its bound, and divides it if that does not
// close it.
//
//   1. values go that the memory left cannot hold, and that the bound rules out;
//   2. prices and sweeps raise the bound for `rounds` rounds (raise_bound.h). What they
//   round
//      to is repaired now and then where it does not fit (local_search.h);
//   3. when two fifths of the values have gone, what is left is reduced (reduce_core.h),
//   and
//      eliminated where no memory and little width is left; then again from 1;
//   4. the variables that the rounds decided least unanimously are divided on trial, each
//      around its two most frequent values, and both halves' bounds raised for a few
//      rounds. Where a half is closed by that, only the other is left: again from 1.
//      Otherwise the division whose bounds rose most is taken.
//
// Input:      a node; the top: only cheaper choices are looked for.
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

#include "solver/core_problem.h"
#include "solver/deadline.h"
#include "solver/dual_ascent.h"

namespace tofu {

// A core that nodes share, and how its values say those of the given one.
struct SearchPart {
  SearchPart(CoreProblem given, Lift given_lift, int64_t top)
      : core(std::move(given)), lift(std::move(given_lift)), ascent(core, top) {
    num_values = ascent.first_value(core.num_variables());
  }

  CoreProblem core;
  Lift lift;
  DualAscent ascent;
  int num_values;
};

struct SearchNode {
  std::shared_ptr<const SearchPart> part;
  DualState state;
  int depth = 0;
  int rounds = 16;
  int64_t number = 0;

  int64_t known_bound = 0;  // of the node that this one was made of

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
  // Told of better choices, and of the node's bound meanwhile; false ends the work.
  std::function<bool(const FoundChoice*, int64_t bound)> listener;
};

struct Expanded {
  FoundChoice best;  // without values where none was found
  std::vector<SearchNode> children;
  std::optional<SearchNode> open;  // what the deadline left
};

Expanded ExpandNode(SearchNode node, const ExpandOptions& options);

}  // namespace tofu

#endif  // TOFU_SOLVER_EXPAND_NODE_H_
