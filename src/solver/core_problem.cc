#include "solver/core_problem.h"

#include <algorithm>

namespace tofu {

int64_t CoreProblem::Cost(const std::vector<int>& values) const {
  int64_t cost = constant;
  for (size_t v = 0; v < domain.size(); ++v) {
    cost = SaturatingAdd(cost, unary[v][values[v]]);
  }
  for (const Edge& edge : edges) {
    const size_t row = static_cast<size_t>(values[edge.a]);
    cost = SaturatingAdd(cost, edge.cost[row * domain[edge.b] + values[edge.b]]);
  }
  return cost;
}

int64_t CoreProblem::HighestCost() const {
  int64_t sum = constant;
  const auto add = [&sum](const std::vector<int64_t>& cells) {
    int64_t highest = 0;
    for (int64_t cell : cells) {
      if (cell < kForbidden) highest = std::max(highest, cell);
    }
    sum = SaturatingAdd(sum, highest);
  };
  for (const std::vector<int64_t>& costs : unary) add(costs);
  for (const Edge& edge : edges) add(edge.cost.vector());
  return std::min(sum, kForbidden - 1);
}

std::vector<int64_t> CoreProblem::Load(const std::vector<int>& values) const {
  std::vector<int64_t> load(capacity.size() + 1, 0);
  for (size_t v = 0; v < domain.size(); ++v) {
    for (const Segment& segment : segments[v]) {
      load[segment.begin] += segment.bytes[values[v]];
      load[segment.end] -= segment.bytes[values[v]];
    }
  }
  for (size_t t = 1; t < load.size(); ++t) load[t] += load[t - 1];
  load.pop_back();
  return load;
}

bool CoreProblem::Fits(const std::vector<int>& values) const {
  const std::vector<int64_t> load = Load(values);
  for (size_t t = 0; t < load.size(); ++t) {
    if (load[t] > capacity[t]) return false;
  }
  return true;
}

}  // namespace tofu
