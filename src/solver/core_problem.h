// The form of a LimitedProblem that the solver works on: one table per pair of variables,
// and memory relative to the least that any choice uses.
//
// Memory that every choice uses is subtracted from the limit, which leaves `capacity`. So
// the least use of every variable at every moment is 0, and a value whose use exceeds the
// capacity at some moment of its segment can never be chosen. Moments are numbered; only
// those that could exceed the limit are kept (moments.h).
#ifndef TOFU_SOLVER_CORE_PROBLEM_H_
#define TOFU_SOLVER_CORE_PROBLEM_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "solver/cost_table.h"
#include "solver/limited_problem.h"

namespace tofu {

struct CoreProblem {
  struct Edge {
    int a = 0;
    int b = 0;         // above a
    SharedCells cost;  // [x_a * domain[b] + x_b], at most kForbidden
  };
  // The memory that a variable uses at the moments begin .. end - 1.
  struct Segment {
    int begin = 0;
    int end = 0;
    std::vector<int64_t> bytes;  // [value]; the least is 0
  };

  bool infeasible = false;  // if true, the other members are meaningless
  int64_t constant = 0;
  std::vector<int> domain;
  std::vector<std::vector<int64_t>> unary;     // [variable][value]
  std::vector<Edge> edges;                     // at most one between two variables
  std::vector<int64_t> capacity;               // [moment]; negative: nothing fits
  std::vector<std::vector<Segment>> segments;  // [variable], ascending, disjoint

  int num_variables() const { return static_cast<int>(domain.size()); }
  int64_t Cost(const std::vector<int>& values) const;
  // At least the cost of every allowed choice, below kForbidden.
  int64_t HighestCost() const;
  // Sum of the chosen bytes at each moment.
  std::vector<int64_t> Load(const std::vector<int>& values) const;
  bool Fits(const std::vector<int>& values) const;
};

// Turns values of a smaller problem into values of the problem it was made from.
using Lift = std::function<std::vector<int>(const std::vector<int>&)>;

}  // namespace tofu

#endif  // TOFU_SOLVER_CORE_PROBLEM_H_
