// Makes a problem smaller without changing its least cost, until no rule applies:
//
//   arc consistency   remove values that a table forbids with every neighbour's value
//   memory            remove values that use more than the capacity at some moment
//   single values     turn a variable with one value into a constant, and add its costs
//                     to its neighbours
//   separable tables  move cost(x, y) = r(x) + c(y) to the two variables
//   functions         merge a variable into a neighbour whose value determines its own
//   dominated values  remove x if another value w costs no more with any neighbours'
//                     values and uses no more at any moment:
//                     u(w) + sum over pairs of max_y (c(w,y) - c(x,y)) <= u(x)
//   low degrees       minimise out variables without uses and with at most two
//                     neighbours; a table over the neighbours replaces each
//
// Input:      a core; `wanted`: the values to keep if possible (empty: all).
// Output:     the smaller core, and the lift of its values to the given core.
// Invariants: at least one of the best choices of wanted values is kept.
// Errors:     none; a contradiction sets `infeasible`.
// Position:   after merge_classes, and again whenever bounds have removed values.
// Complexity: a round is O(cells * domain) at most; there are few rounds.
#ifndef TOFU_SOLVER_REDUCE_CORE_H_
#define TOFU_SOLVER_REDUCE_CORE_H_

#include <vector>

#include "solver/problem/choice_problem.h"
#include "solver/problem/table_memo.h"

namespace tofu {

struct ReducedCore {
  ChoiceProblem core;
  Lift lift;
  std::vector<int> moments;  // [new number]: old number
};

// [variable][value]: whether the value is wanted.
using ValueMask = std::vector<std::vector<char>>;

// `memo`: shared by reductions of cores with equal tables; null: not shared.
ReducedCore ReduceCore(ChoiceProblem core, const ValueMask& wanted = {},
                       TableMemo* memo = nullptr);

}  // namespace tofu

#endif  // TOFU_SOLVER_REDUCE_CORE_H_
