// Which values can be part of a choice that costs less than a given one.
//
// Input:      a problem; the cost `top`.
// Output:     [variable][value]: false only for values of which dual_ascent proves that
// every
//             choice with them costs `top` or more.
// Errors:     none.
// Complexity: `rounds` of two sweeps, O(cells) each.
#ifndef TOFU_SOLVER_WANTED_VALUES_H_
#define TOFU_SOLVER_WANTED_VALUES_H_

#include <cstdint>

#include "solver/choice_problem.h"
#include "solver/deadline.h"
#include "solver/reduce_core.h"

namespace tofu {

ValueMask WantedValues(const ChoiceProblem& problem, int64_t top, int rounds,
                       Deadline deadline);

}  // namespace tofu

#endif  // TOFU_SOLVER_WANTED_VALUES_H_
