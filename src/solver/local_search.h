// Makes a choice fit, and then cheaper, one variable at a time.
//
// Repair:   while some moment exceeds its capacity, change the value that reduces the sum
//           of all excesses most in relation to its cost.
// Improve:  change each variable in turn to its best value that fits, until no change
//           lowers the cost.
//
// Input:      any values.
// Output:     values whose cost is not forbidden and that fit, or nothing.
// Complexity: O(values * moments) for a change by Repair, and for a round of Improve.
#ifndef TOFU_SOLVER_LOCAL_SEARCH_H_
#define TOFU_SOLVER_LOCAL_SEARCH_H_

#include <optional>
#include <vector>

#include "solver/problem/choice_problem.h"
#include "solver/problem/deadline.h"

namespace tofu {

std::optional<std::vector<int>> RepairAndImprove(const ChoiceProblem& core,
                                                 std::vector<int> values,
                                                 Deadline deadline);

}  // namespace tofu

#endif  // TOFU_SOLVER_LOCAL_SEARCH_H_
