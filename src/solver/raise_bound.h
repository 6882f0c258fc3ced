// Raises the bound of a DualAscent as far as prices and sweeps bring it.
//
// Prices p follow a deflected subgradient. With g = load - capacity of what a sweep
// rounds to,
//     d <- a g + (1 - a) d,   p <- max(0, p* + s (target - bound) / |d|^2 * d),
// p* being the prices of the best bound so far. After `kPatience` rounds without a better
// one the best state is taken up again with a smaller s. The target is 5% above the best
// bound, at most the cost of the best choice known. Without memory a round is only two
// sweeps.
//
// Input:      a state of the ascent.
// Output:     that of the best bound; each choice rounded to is shown to `on_choice`,
// which
//             may lower the top.
// Stops:      after `rounds`, when two dozen rounds add less than a millionth (and, with
//             memory, s is small), when nothing below the top is left, or at the
//             deadline.
// Complexity: a round is two sweeps and a change of prices.
#ifndef TOFU_SOLVER_RAISE_BOUND_H_
#define TOFU_SOLVER_RAISE_BOUND_H_

#include <functional>
#include <vector>

#include "solver/deadline.h"
#include "solver/dual_ascent.h"

namespace tofu {

struct RaiseOptions {
  int rounds = 1000;
  double first_step = 1.0;
  Deadline deadline = Deadline::max();
};

// Returns the top: a choice shown may have lowered it.
using OnChoice = std::function<int64_t(const std::vector<int>& values)>;

// `counts`, if any, becomes how often each value was rounded to ([first_value(v) + x]).
void RaiseBound(const CoreProblem& core, const DualAscent& ascent,
                const RaiseOptions& options, const OnChoice& on_choice, DualState* state,
                std::vector<int>* counts);

}  // namespace tofu

#endif  // TOFU_SOLVER_RAISE_BOUND_H_
