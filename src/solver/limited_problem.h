// The problem that the solver solves: minimise costs of single variables and of pairs,
// while the memory that the choices use stays within a limit at every moment.
//
//   minimise    constant + sum_v unary_v(x_v) + sum_(a,b) pair_ab(x_a, x_b)
//   such that   for every moment t:  sum of bytes_u(x_v) over the uses u = (v, begin,
//               end) with begin <= t < end  is at most `limit`.
//
// Costs and bytes are not negative. Sums of costs saturate at kForbidden: a cost or sum
// of that or more means "not allowed". The largest bytes of all uses add up to less than
// kUnlimited, so nothing overflows. A use with begin >= end uses nothing.
#ifndef TOFU_SOLVER_LIMITED_PROBLEM_H_
#define TOFU_SOLVER_LIMITED_PROBLEM_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "solver/cost_table.h"
#include "solver/pairwise_problem.h"

namespace tofu {

constexpr int64_t kForbidden = 1000000000000000000;  // 10^18
constexpr int64_t kUnlimited = int64_t{1} << 62;     // bytes

// Adds two numbers from 0 to kForbidden.
inline int64_t SaturatingAdd(int64_t a, int64_t b) { return std::min(a + b, kForbidden); }

struct LimitedProblem {
  struct Use {
    int variable = 0;
    int64_t begin = 0;
    int64_t end = 0;
    SharedCells bytes;  // [value]
  };

  PairwiseProblem costs;
  std::vector<Use> uses;
  int64_t limit = kUnlimited;

  // kForbidden for a choice that is not allowed. Ignores the limit.
  int64_t Cost(const std::vector<int>& values) const;
  // The most that is used at any moment.
  int64_t PeakBytes(const std::vector<int>& values) const;
};

}  // namespace tofu

#endif  // TOFU_SOLVER_LIMITED_PROBLEM_H_
