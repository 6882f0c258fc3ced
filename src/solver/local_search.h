// Makes a choice fit, and then better, one variable at a time.
//
// Repair:   while some moment is over its capacity, the change of one value that lowers
//           the sum of all excesses most for what it costs.
// Improve:  while there is one, the change of one value that fits and lowers the cost;
// the
//           variables in turn, each to its best value.
//
// Input:      any values.
// Output:     values whose cost is not forbidden and that fit, or nothing.
// Complexity: a change that Repair makes is O(values * moments); a round of Improve as
// much.
#ifndef TOFU_SOLVER_LOCAL_SEARCH_H_
#define TOFU_SOLVER_LOCAL_SEARCH_H_

#include <optional>
#include <vector>

#include "solver/core_problem.h"
#include "solver/deadline.h"

namespace tofu {

std::optional<std::vector<int>> RepairAndImprove(const CoreProblem& core,
                                                 std::vector<int> values,
                                                 Deadline deadline);

}  // namespace tofu

#endif  // TOFU_SOLVER_LOCAL_SEARCH_H_
