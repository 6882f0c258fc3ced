#include "solver/pairwise_problem.h"

namespace tofu {

int PairwiseProblem::AddVariable(int domain_size) {
  domain.push_back(domain_size);
  unary.emplace_back();
  return static_cast<int>(domain.size()) - 1;
}

int64_t PairwiseProblem::Cost(const std::vector<int>& values) const {
  int64_t cost = constant;
  for (size_t v = 0; v < domain.size(); ++v) {
    if (!unary[v].empty()) cost += unary[v][values[v]];
  }
  for (const Pair& pair : pairs) {
    cost += pair.cost[values[pair.a] * domain[pair.b] + values[pair.b]];
  }
  return cost;
}

}  // namespace tofu
