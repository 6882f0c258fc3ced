#include "solver/limited_problem.h"

#include <map>

namespace tofu {

int64_t LimitedProblem::Cost(const std::vector<int>& values) const {
  int64_t cost = std::min(costs.constant, kForbidden);
  for (size_t v = 0; v < costs.domain.size(); ++v) {
    if (costs.unary[v].empty()) continue;
    cost = SaturatingAdd(cost, std::min(costs.unary[v][values[v]], kForbidden));
  }
  for (const PairwiseProblem::Pair& pair : costs.pairs) {
    const size_t cell = static_cast<size_t>(values[pair.a]) * costs.domain[pair.b] +
                        static_cast<size_t>(values[pair.b]);
    cost = SaturatingAdd(cost, std::min(pair.cost[cell], kForbidden));
  }
  return cost;
}

int64_t LimitedProblem::PeakBytes(const std::vector<int>& values) const {
  std::map<int64_t, int64_t> change;  // [moment]
  for (const Use& use : uses) {
    if (use.begin >= use.end) continue;
    const int64_t bytes = use.bytes[values[use.variable]];
    change[use.begin] += bytes;
    change[use.end] -= bytes;
  }
  int64_t now = 0;
  int64_t peak = 0;
  for (const auto& [moment, bytes] : change) {
    now += bytes;
    peak = std::max(peak, now);
  }
  return peak;
}

}  // namespace tofu
