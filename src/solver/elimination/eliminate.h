// Minimises a sum of cost tables over few variables each, by variable
// elimination. The dynamic programming over a linear coarsened graph (paper
// section 5.1) is the special case in which every elimination leaves a table
// over one neighbour; fork-join and other graphs need no special treatment.
//
// Input:      a problem without memory, whose costs add up to less than 2^62.
// Output:     values, their cost, a lower bound on every cost, and a status.
// Recurrence: eliminating v replaces the tables T_1 .. T_r that mention v by
//               M(x_U) = min over x_v of sum_j T_j,
//             U being v's neighbours. The next v is the one whose neighbours
//             need the fewest new edges among them (min-fill), then the one
//             with the smallest M, then the lowest number.
// Limit:      a table M never has more than max_table cells. If it would, the
//             tables of v are divided into several sums, each minimised
//             separately (mini-buckets), which gives a lower bound. Then the
//             values are improved: again and again, a few variables keep their
//             values and the problem of all others is solved exactly.
// Complexity: O(V log V + sum over v of |M_v| * domain[v] * r_v); linear in V
//             for graphs of bounded width. Memory: sum of |M_v|.
// Repetition: equal tables are minimised once (cost_table.h). The order and the
//             tables that each step sums (elimination_schedule.h) do not depend
//             on the costs, so problems of equal structure that share a cache
//             compute them once.
// Deadline:   checked before every table. After it, tables of a few cells decide
//             the other variables; if it has passed at the start, variables are
//             decided one at a time, in the order of their numbers.
// Determinism: equal problems give equal values, unless the time limit ends
//             the improvement; ties go to the lowest value.
// Errors:     none.
#ifndef TOFU_SOLVER_ELIMINATION_ELIMINATE_H_
#define TOFU_SOLVER_ELIMINATION_ELIMINATE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "solver/elimination/elimination_order.h"
#include "solver/elimination/elimination_schedule.h"
#include "solver/problem/choice_problem.h"
#include "solver/problem/cost_table.h"
#include "solver/problem/deadline.h"

namespace tofu {

// Shared by searches over problems that resemble each other.
class EliminationCache {
 public:
  // The elimination of problems of one structure.
  struct Plan {
    std::vector<int> domain;
    std::vector<std::pair<int, int>> edges;
    int64_t max_table = 0;
    EliminationOrder order;
    std::optional<EliminationSchedule> schedule;  // only if the order is exact
  };

  TablePool& pool() { return pool_; }
  Plan& PlanOf(const ChoiceProblem& problem, int64_t max_table, Deadline deadline);

 private:
  TablePool pool_;
  std::deque<Plan> plans_;
};

struct EliminateOptions {
  int64_t max_table = int64_t{1} << 20;  // cells of one table
  // The most additions; a problem that needs more is refused with kTooBig. If the order
  // is exact, equal tables count once, and cached tables do not count.
  double max_work = std::numeric_limits<double>::infinity();
  Deadline deadline = Deadline::max();
};

enum class EliminateStatus { kOptimal, kFeasible, kTooBig };

struct EliminateResult {
  EliminateStatus status = EliminateStatus::kTooBig;
  std::vector<int> values;
  int64_t cost = 0;
  int64_t lower_bound = 0;
};

// `cache` may be null.
EliminateResult Eliminate(const ChoiceProblem& problem, const EliminateOptions& options,
                          EliminationCache* cache = nullptr);

}  // namespace tofu

#endif  // TOFU_SOLVER_ELIMINATION_ELIMINATE_H_
