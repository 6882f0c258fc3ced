// Adds tables of two variables to a core, which has one table at most for each two.
//
// Input:      a problem with its variables; tables in any order and direction.
// Output:     the problem's pairs, the lower number first, in the order in which each two
//             variables came first. No cell is above kForbidden.
// Errors:     none.
// Position:   where merge_classes and wanted_values make cores.
// Complexity: O(cells). Equal tables of one address stay that, also if they are turned.
#ifndef TOFU_SOLVER_SUM_PAIRS_H_
#define TOFU_SOLVER_SUM_PAIRS_H_

#include <cstddef>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "solver/choice_problem.h"

namespace tofu {

class PairSums {
 public:
  explicit PairSums(ChoiceProblem* core) : core_(*core) {}

  // cost[x_a * domain[b] + x_b]
  void Add(int a, int b, const SharedCells& cost);

 private:
  ChoiceProblem& core_;
  std::map<std::pair<int, int>, size_t> pair_of_;
  // [cells, their columns, whether turned]: the given cells, and what they become.
  std::map<std::tuple<const std::vector<int64_t>*, int, bool>,
           std::pair<SharedCells, SharedCells>>
      known_;
};

}  // namespace tofu

#endif  // TOFU_SOLVER_SUM_PAIRS_H_
