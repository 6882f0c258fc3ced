// Raises the bound of a DualAscent by prices and sweeps.
//
// Prices p follow a deflected subgradient. With g = load - capacity for the choice that a
// sweep rounds to,
//     d <- a g + (1 - a) d,   p <- max(0, p* + s (target - bound) / |d|^2 * d),
// where p* are the prices of the best bound so far. After `kPatience` rounds without a
// better bound, the search returns to the best state with a smaller s. The target is 5%
// above the best bound, but at most the cost of the best known choice. Without memory
// limits a round consists of two sweeps only.
//
// Input:      a state of the ascent.
// Output:     the state with the best bound. `on_choice` gets each choice that a sweep
//             rounds to, and may lower the top.
// Stops:      after `rounds`; when two dozen rounds add less than a millionth (and, with
//             memory limits, s is small); when no choice below the top is left; or at the
//             deadline.
// Complexity: a round takes two sweeps and a change of prices.
#ifndef TOFU_SOLVER_RAISE_BOUND_H_
#define TOFU_SOLVER_RAISE_BOUND_H_

#include <functional>
#include <vector>

#include "solver/dual_ascent.h"
#include "solver/problem/deadline.h"

namespace tofu {

struct RaiseOptions {
  int rounds = 1000;
  double first_step = 1.0;
  Deadline deadline = Deadline::max();
};

// Returns the top, which the choice may have lowered.
using OnChoice = std::function<int64_t(const std::vector<int>& values)>;

// Sets `counts`, unless null, to the number of sweeps that rounded to each value
// ([first_value(v) + x]).
void RaiseBound(const ChoiceProblem& core, const DualAscent& ascent,
                const RaiseOptions& options, const OnChoice& on_choice, DualState* state,
                std::vector<int>* counts);

}  // namespace tofu

#endif  // TOFU_SOLVER_RAISE_BOUND_H_
