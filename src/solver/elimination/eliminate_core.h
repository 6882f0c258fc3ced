// Solves a core without memory limits exactly if its width allows.
//
// Input:      a core; the top: only choices that cost less are of interest.
// Output:     the best values; empty if memory is limited, if `max_work` additions are
//             not enough, or if time is up. Equal tables count once, and tables that the
//             cache knows do not count.
// Position:   before dual ascent, and in every node of branch_and_bound that was reduced.
// Complexity: eliminate.h; `max_work` additions at most.
#ifndef TOFU_SOLVER_ELIMINATION_ELIMINATE_CORE_H_
#define TOFU_SOLVER_ELIMINATION_ELIMINATE_CORE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "solver/elimination/eliminate.h"
#include "solver/problem/choice_problem.h"
#include "solver/problem/deadline.h"

namespace tofu {

std::optional<std::vector<int>> EliminateCore(const ChoiceProblem& core, int64_t top,
                                              double max_work, Deadline deadline,
                                              EliminationCache* cache = nullptr);

}  // namespace tofu

#endif  // TOFU_SOLVER_ELIMINATION_ELIMINATE_CORE_H_
