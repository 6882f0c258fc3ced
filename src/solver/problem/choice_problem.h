// The problem that the solver solves: choose a value of each variable, at the least cost
// and within the capacity of every moment.
//
//   minimise    constant + sum_v unary_v(x_v) + sum_(a,b) pair_ab(x_a, x_b)
//   such that   for every moment t:  sum over v of bytes_t,v(x_v)  <=  capacity_t
//
// Costs and bytes are not negative. Sums of costs saturate at kForbidden: a cost or sum
// of that or more means "not allowed". The largest bytes of all variables add up to less
// than kUnlimited, so nothing overflows.
//
// Reductions turn a problem into a core: every variable has unary costs, two variables
// have at most one table, with the lower number first, and the least use of every
// variable at every moment is 0. Capacities exclude the memory that every choice uses, so
// a value whose use exceeds one can never be chosen, and only moments that choices can
// exceed are left (moments.h).
#ifndef TOFU_SOLVER_PROBLEM_CHOICE_PROBLEM_H_
#define TOFU_SOLVER_PROBLEM_CHOICE_PROBLEM_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "solver/problem/cost_table.h"

namespace tofu {

constexpr int64_t kForbidden = 1000000000000000000;  // 10^18
constexpr int64_t kUnlimited = int64_t{1} << 62;     // bytes

// Adds two numbers from 0 to kForbidden.
inline int64_t SaturatingAdd(int64_t a, int64_t b) { return std::min(a + b, kForbidden); }

struct ChoiceProblem {
  struct Pair {
    int a = 0;
    int b = 0;         // not a
    SharedCells cost;  // [x_a * domain[b] + x_b]
  };
  // The memory that a variable uses at the moments begin .. end - 1.
  struct Segment {
    int begin = 0;
    int end = 0;
    std::vector<int64_t> bytes;  // [value]
  };

  bool infeasible = false;  // if true, the other members are meaningless
  int64_t constant = 0;
  std::vector<int> domain;                  // [variable], at least 1
  std::vector<std::vector<int64_t>> unary;  // [variable]: empty means zeros
  std::vector<Pair> pairs;
  std::vector<int64_t> capacity;               // [moment]; negative: nothing fits
  std::vector<std::vector<Segment>> segments;  // [variable], ascending, disjoint

  int num_variables() const { return static_cast<int>(domain.size()); }
  int AddVariable(int domain_size);

  // The cost of a choice, which is kForbidden if it is not allowed. Ignores memory.
  int64_t Cost(const std::vector<int>& values) const;
  // The exact cost, without saturation; costs must add up to less than 2^62.
  int64_t Sum(const std::vector<int>& values) const;
  // A bound from above of the cost of every allowed choice, below kForbidden.
  int64_t HighestCost() const;

  // The sum of the chosen bytes at each moment.
  std::vector<int64_t> Load(const std::vector<int>& values) const;
  bool Fits(const std::vector<int>& values) const;
  int64_t PeakBytes(const std::vector<int>& values) const;

  // The highest capacity; kUnlimited if there are no moments.
  int64_t Limit() const;
  // Gives every moment this capacity.
  void SetLimit(int64_t limit);
};

// Turns values of a smaller problem into values of the problem it was made from.
using Lift = std::function<std::vector<int>(const std::vector<int>&)>;

}  // namespace tofu

#endif  // TOFU_SOLVER_PROBLEM_CHOICE_PROBLEM_H_
