// Large-neighbourhood search: fixes most variables at their values and solves the problem
// of the others.
//
// A neighbourhood grows from one variable through tables and through moments that are
// nearly full, breadth first in a random order given by `seed`, up to a few hundred
// values. The problem over the neighbourhood is reduced and searched by branch and bound
// for a few nodes.
//
// Input:      values that fit, and their cost.
// Output:     cheaper values, or nothing.
// Position:   in branch_and_bound, between batches of nodes.
// Complexity: a reduction of the core, and max_nodes nodes of that size.
#ifndef TOFU_SOLVER_IMPROVE_CHOICE_H_
#define TOFU_SOLVER_IMPROVE_CHOICE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "solver/problem/choice_problem.h"
#include "solver/problem/deadline.h"

namespace tofu {

struct ImproveOptions {
  uint64_t seed = 1;
  int64_t max_nodes = 32;
  Deadline deadline = Deadline::max();
};

std::optional<std::vector<int>> ImproveChoice(const ChoiceProblem& core,
                                              const std::vector<int>& values,
                                              int64_t cost,
                                              const ImproveOptions& options);

}  // namespace tofu

#endif  // TOFU_SOLVER_IMPROVE_CHOICE_H_
