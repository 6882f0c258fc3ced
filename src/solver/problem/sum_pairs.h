// Adds tables of two variables to a core, which has at most one table per two variables.
//
// Input:      a problem with its variables; tables in any order and direction.
// Output:     the problem's pairs, the lower number first, in the order in which their
//             first tables came. No cell is above kForbidden.
// Errors:     none.
// Position:   used by merge_classes and wanted_values to make cores.
// Complexity: O(cells). Tables that share an address still do when they are turned.
#ifndef TOFU_SOLVER_PROBLEM_SUM_PAIRS_H_
#define TOFU_SOLVER_PROBLEM_SUM_PAIRS_H_

#include <cstddef>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "solver/problem/choice_problem.h"

namespace tofu {

class PairSums {
 public:
  explicit PairSums(ChoiceProblem* core) : core_(*core) {}

  // cost[x_a * domain[b] + x_b]
  void Add(int a, int b, const SharedCells& cost);

 private:
  ChoiceProblem& core_;
  std::map<std::pair<int, int>, size_t> pair_of_;
  // [cells, their columns, whether turned]: the given cells, and the core's.
  std::map<std::tuple<const std::vector<int64_t>*, int, bool>,
           std::pair<SharedCells, SharedCells>>
      known_;
};

}  // namespace tofu

#endif  // TOFU_SOLVER_PROBLEM_SUM_PAIRS_H_
