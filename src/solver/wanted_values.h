// Finds the values that a choice below a given cost may have.
//
// Input:      a problem; the cost `top`.
// Output:     [variable][value]: false only where dual_ascent proves that every choice
//             with this value costs `top` or more.
// Errors:     none.
// Complexity: `rounds` of two sweeps, O(cells) each.
#ifndef TOFU_SOLVER_WANTED_VALUES_H_
#define TOFU_SOLVER_WANTED_VALUES_H_

#include <cstdint>

#include "solver/problem/choice_problem.h"
#include "solver/problem/deadline.h"
#include "solver/reduce_core.h"

namespace tofu {

ValueMask WantedValues(const ChoiceProblem& problem, int64_t top, int rounds,
                       Deadline deadline);

}  // namespace tofu

#endif  // TOFU_SOLVER_WANTED_VALUES_H_
