// Makes a problem smaller without changing its least cost, until no rule applies:
//
//   arc consistency   a value that no neighbour's value is allowed with goes
//   memory            a value that uses more than the capacity at some moment goes
//   single values     a variable with one value becomes a constant and its neighbours'
//   costs separable tables  cost(x, y) = r(x) + c(y) goes to the two variables functions
//   a variable whose neighbour's value says its own is merged into it dominated values  x
//   goes if another value w costs no more with any neighbours' values,
//                       and uses no more at any moment:
//                       u(w) + sum over edges of max_y (c(w,y) - c(x,y)) <= u(x)
//   low degrees       a variable without uses and with at most two neighbours is
//   minimised
//                       out; a table over its neighbours takes its place
//
// Input:      a core; optionally which values are still wanted (`wanted`, empty: all).
// Output:     the smaller core, and how its values say those of the given one.
// Invariants: at least one of the best choices of wanted values is kept.
// Errors:     none; a contradiction sets `infeasible`.
// Position:   after merge_classes, and again whenever bounds have removed values.
// Complexity: a round is O(cells * domain) at most; there are few rounds.
#ifndef TOFU_SOLVER_REDUCE_CORE_H_
#define TOFU_SOLVER_REDUCE_CORE_H_

#include <vector>

#include "solver/core_problem.h"

namespace tofu {

struct ReducedCore {
  CoreProblem core;
  Lift lift;
  std::vector<int> moments;  // those kept, by the numbers they had
};

// [variable][value]: whether the value is wanted.
using ValueMask = std::vector<std::vector<char>>;

ReducedCore ReduceCore(CoreProblem core, const ValueMask& wanted = {});

}  // namespace tofu

#endif  // TOFU_SOLVER_REDUCE_CORE_H_
