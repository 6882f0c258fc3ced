// Plans an elimination: the tables that each step sums, and the table that it leaves. The
// schedule does not depend on costs. Searches over one graph pose problems that differ
// only in their costs, so one schedule serves them all.
//
// Input:      the structure of a ChoiceProblem, and an order of its variables.
// Output:     the same values and the same bound as bucket elimination in that
//             order; ties go to the lowest value.
// Position:   a part of eliminate, for orders in which no table gets too large.
// Complexity: construction O(sum over v of r_v * |U_v|); a run takes a look-up for
//             each pair and variable whose tables are cached (cost_table.h), and
//             O(domain[v] * r_v) for the best value of v.
#ifndef TOFU_SOLVER_ELIMINATION_ELIMINATION_SCHEDULE_H_
#define TOFU_SOLVER_ELIMINATION_ELIMINATION_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "solver/problem/choice_problem.h"
#include "solver/problem/cost_table.h"
#include "solver/problem/deadline.h"

namespace tofu {

class EliminationSchedule {
 public:
  // A schedule for every problem of this domain whose pairs have these variables, in this
  // order.
  EliminationSchedule(std::vector<int> domain,
                      const std::vector<std::pair<int, int>>& edges,
                      const std::vector<int>& order, TablePool* pool);

  // Sets the best values of `problem` and their cost. Returns false and sets nothing if
  // the deadline passes first, or the tables that the pool does not know yet need more
  // additions than `max_work`. `pool` must be the one given to the constructor.
  bool Run(const ChoiceProblem& problem, double max_work, Deadline deadline,
           TablePool* pool, std::vector<int>* values, int64_t* least);

 private:
  // One of the tables that a step sums.
  struct Operand {
    int table = 0;
    int64_t value_stride = 0;  // cells between neighbouring values of the variable
    size_t strides = 0;        // position of the other variables' strides in strides_
    size_t num_strides = 0;
  };
  struct Stride {
    int variable = 0;
    int64_t cells = 0;
  };
  struct Step {
    int variable = 0;
    int pattern = 0;      // of the pool
    size_t operands = 0;  // position of the first one in operands_
    size_t num_operands = 0;
  };

  void AddStep(int v, const std::vector<int>& tables,
               const std::vector<std::vector<int>>& scopes, const std::vector<int>& scope,
               TablePool* pool);
  int BestValue(const Step& step, const std::vector<int>& values);

  std::vector<int> domain_;
  std::vector<Step> steps_;
  std::vector<Operand> operands_;
  std::vector<Stride> strides_;
  // The state of one run. Tables are numbered: one per variable, then one per pair, then
  // one per step.
  std::vector<const TablePool::Cells*> tables_;  // null: zeros
  std::vector<const TablePool::Cells*> summed_;
  std::vector<int64_t> sums_;
};

}  // namespace tofu

#endif  // TOFU_SOLVER_ELIMINATION_ELIMINATION_SCHEDULE_H_
