// Orders variables for elimination by min-fill: next comes the variable whose neighbours
// need the fewest new edges among them; ties go to the smallest remaining table, then to
// the lowest number. A new edge also makes its ends' common neighbours cheaper, but their
// key is updated only when they are neighbours of an eliminated variable, so the order
// may differ from true min-fill.
//
// Output:     the order, and the cost of eliminating in this order.
// Complexity: O(V log V) for graphs of bounded width. A variable that would leave
//             a table above max_table adds no edges, because its tables will be
//             divided. After the deadline the other variables follow by number.
#ifndef TOFU_SOLVER_ELIMINATION_ELIMINATION_ORDER_H_
#define TOFU_SOLVER_ELIMINATION_ELIMINATION_ORDER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "solver/problem/deadline.h"

namespace tofu {

struct EliminationOrder {
  std::vector<int> order;
  double work = 0;    // cells of all tables made, each times the variable's domain
  bool exact = true;  // no table exceeds max_table
};

// Edges connect distinct variables; repeated edges count once.
EliminationOrder MinFillOrder(const std::vector<int>& domain,
                              const std::vector<std::pair<int, int>>& edges,
                              int64_t max_table, Deadline deadline = Deadline::max());

}  // namespace tofu

#endif  // TOFU_SOLVER_ELIMINATION_ELIMINATION_ORDER_H_
