#include "solver/problem/choice_problem.h"

namespace tofu {

int ChoiceProblem::AddVariable(int domain_size) {
  domain.push_back(domain_size);
  unary.emplace_back();
  segments.emplace_back();
  return num_variables() - 1;
}

int64_t ChoiceProblem::Cost(const std::vector<int>& values) const {
  int64_t cost = std::min(constant, kForbidden);
  for (size_t v = 0; v < domain.size(); ++v) {
    if (unary[v].empty()) continue;
    cost = SaturatingAdd(cost, std::min(unary[v][values[v]], kForbidden));
  }
  for (const Pair& pair : pairs) {
    const size_t row = static_cast<size_t>(values[pair.a]);
    const int64_t cell = pair.cost[row * domain[pair.b] + values[pair.b]];
    cost = SaturatingAdd(cost, std::min(cell, kForbidden));
  }
  return cost;
}

int64_t ChoiceProblem::Sum(const std::vector<int>& values) const {
  int64_t sum = constant;
  for (size_t v = 0; v < domain.size(); ++v) {
    if (!unary[v].empty()) sum += unary[v][values[v]];
  }
  for (const Pair& pair : pairs) {
    const size_t row = static_cast<size_t>(values[pair.a]);
    sum += pair.cost[row * domain[pair.b] + values[pair.b]];
  }
  return sum;
}

int64_t ChoiceProblem::HighestCost() const {
  int64_t sum = constant;
  const auto add = [&sum](const std::vector<int64_t>& cells) {
    int64_t highest = 0;
    for (int64_t cell : cells) {
      if (cell < kForbidden) highest = std::max(highest, cell);
    }
    sum = SaturatingAdd(sum, highest);
  };
  for (const std::vector<int64_t>& costs : unary) add(costs);
  for (const Pair& pair : pairs) add(pair.cost.vector());
  return std::min(sum, kForbidden - 1);
}

std::vector<int64_t> ChoiceProblem::Load(const std::vector<int>& values) const {
  std::vector<int64_t> load(capacity.size() + 1, 0);
  for (size_t v = 0; v < segments.size(); ++v) {
    for (const Segment& segment : segments[v]) {
      load[segment.begin] += segment.bytes[values[v]];
      load[segment.end] -= segment.bytes[values[v]];
    }
  }
  for (size_t t = 1; t < load.size(); ++t) load[t] += load[t - 1];
  load.pop_back();
  return load;
}

bool ChoiceProblem::Fits(const std::vector<int>& values) const {
  const std::vector<int64_t> load = Load(values);
  for (size_t t = 0; t < load.size(); ++t) {
    if (load[t] > capacity[t]) return false;
  }
  return true;
}

int64_t ChoiceProblem::PeakBytes(const std::vector<int>& values) const {
  int64_t peak = 0;
  for (int64_t load : Load(values)) peak = std::max(peak, load);
  return peak;
}

int64_t ChoiceProblem::Limit() const {
  if (capacity.empty()) return kUnlimited;
  return *std::max_element(capacity.begin(), capacity.end());
}

void ChoiceProblem::SetLimit(int64_t limit) {
  std::fill(capacity.begin(), capacity.end(), limit);
}

}  // namespace tofu
