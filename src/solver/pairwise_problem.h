// The sum that a search minimises: costs of single variables and of pairs.
#ifndef TOFU_SOLVER_PAIRWISE_PROBLEM_H_
#define TOFU_SOLVER_PAIRWISE_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "solver/cost_table.h"

namespace tofu {

struct PairwiseProblem {
  struct Pair {
    int a = 0;
    int b = 0;         // not a
    SharedCells cost;  // [x_a * domain[b] + x_b]
  };

  std::vector<int> domain;                  // [variable], at least 1
  std::vector<std::vector<int64_t>> unary;  // [variable]: empty means zeros
  std::vector<Pair> pairs;
  int64_t constant = 0;

  int AddVariable(int domain_size);
  int64_t Cost(const std::vector<int>& values) const;
};

}  // namespace tofu

#endif  // TOFU_SOLVER_PAIRWISE_PROBLEM_H_
