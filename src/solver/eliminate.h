// Minimises a sum of cost tables over few variables each, by variable
// elimination. The dynamic programming over a linear coarsened graph (paper
// section 5.1) is the special case in which every elimination leaves a table
// over one neighbour; fork-join and other graphs need no special treatment.
//
// Input:      a PairwiseProblem: minimise, over x_v in 0 .. domain[v] - 1,
//               constant + sum_v unary_v(x_v) + sum_(a,b) pair_ab(x_a, x_b).
// Output:     values, their cost, a lower bound on every cost, and a status.
// Recurrence: eliminating v replaces the tables T_1 .. T_r that mention v by
//               M(x_U) = min over x_v of sum_j T_j,
//             U being v's neighbours. The next v is the one whose neighbours
//             need the fewest new edges among them (min-fill), then the one
//             with the smallest M, then the lowest number.
// Limit:      a table M of more than max_table cells is not made. Then the
//             tables of v are divided into several sums, each minimised by
//             itself (mini-buckets), which gives a lower bound. Values found
//             that way are improved by solving exactly, again and again, what
//             remains when a few variables keep their values.
// Complexity: O(V log V + sum over v of |M_v| * domain[v] * r_v); linear in V
//             for graphs of bounded width. Memory: sum of |M_v|.
// Repetition: equal tables are minimised once (cost_table.h); what does not depend
//             on the costs, the order and which tables each step sums
//             (elimination_schedule.h), is found once for problems of equal
//             structure that share a cache.
// Deadline:   looked at before every table. What remains then is decided by
//             tables of a few cells; without any time, one variable after the
//             other in the order of their numbers.
// Determinism: equal problems give equal values, unless the time limit ends
//             the improvement; ties go to the lowest value.
// Errors:     none.
#ifndef TOFU_SOLVER_ELIMINATE_H_
#define TOFU_SOLVER_ELIMINATE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "solver/cost_table.h"
#include "solver/deadline.h"
#include "solver/elimination_order.h"
#include "solver/elimination_schedule.h"
#include "solver/pairwise_problem.h"

namespace tofu {

// What searches over problems that resemble each other share.
class EliminationCache {
 public:
  // How problems of one structure are eliminated.
  struct Plan {
    std::vector<int> domain;
    std::vector<std::pair<int, int>> edges;
    int64_t max_table = 0;
    EliminationOrder order;
    std::optional<EliminationSchedule> schedule;  // where the order is exact
  };

  TablePool& pool() { return pool_; }
  Plan& PlanOf(const PairwiseProblem& problem, int64_t max_table, Deadline deadline);

 private:
  TablePool pool_;
  std::deque<Plan> plans_;
};

struct EliminateOptions {
  int64_t max_table = int64_t{1} << 20;  // cells of one table
  // Additions a solver may spend; more is refused with kTooBig beforehand.
  int64_t max_work = int64_t{1} << 62;
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
EliminateResult Eliminate(const PairwiseProblem& problem, const EliminateOptions& options,
                          EliminationCache* cache = nullptr);

}  // namespace tofu

#endif  // TOFU_SOLVER_ELIMINATE_H_
