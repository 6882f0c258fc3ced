#include "solver/local_search.h"

#include <algorithm>
#include <utility>

namespace tofu {
namespace {

using Segment = ChoiceProblem::Segment;

constexpr int kMaxLocalRounds = 50;

class LocalSearch {
 public:
  LocalSearch(const ChoiceProblem& core, std::vector<int> values, Deadline deadline)
      : core_(core),
        deadline_(deadline),
        values_(std::move(values)),
        load_(core.Load(values_)),
        pairs_of_(core.domain.size()) {
    for (const ChoiceProblem::Pair& pair : core.pairs) {
      pairs_of_[pair.a].push_back(&pair);
      pairs_of_[pair.b].push_back(&pair);
    }
  }

  std::optional<std::vector<int>> Run() {
    if (!Repair()) return std::nullopt;
    for (int round = 0; round < kMaxLocalRounds && Improve(); ++round) {
      if (IsPast(deadline_)) break;
    }
    if (core_.Cost(values_) >= kForbidden) return std::nullopt;
    return std::move(values_);
  }

 private:
  // The cost of v at each value, while its neighbours keep their values.
  std::vector<int64_t> CostsOf(int v) const {
    std::vector<int64_t> costs = core_.unary[v];
    for (const ChoiceProblem::Pair* pair : pairs_of_[v]) {
      const size_t width = static_cast<size_t>(core_.domain[pair->b]);
      for (size_t x = 0; x < costs.size(); ++x) {
        const size_t cell =
            pair->a == v ? x * width + values_[pair->b] : values_[pair->a] * width + x;
        costs[x] = SaturatingAdd(costs[x], pair->cost[cell]);
      }
    }
    return costs;
  }

  // The bytes by which the total excess over the capacities shrinks if v changes to x.
  int64_t Relief(int v, int x) const {
    int64_t relief = 0;
    for (const Segment& segment : core_.segments[v]) {
      const int64_t change = segment.bytes[x] - segment.bytes[values_[v]];
      if (change == 0) continue;
      for (int t = segment.begin; t < segment.end; ++t) {
        const int64_t excess = load_[t] - core_.capacity[t];
        relief += std::max<int64_t>(excess, 0) - std::max<int64_t>(excess + change, 0);
      }
    }
    return relief;
  }

  void Change(int v, int x) {
    for (const Segment& segment : core_.segments[v]) {
      const int64_t change = segment.bytes[x] - segment.bytes[values_[v]];
      for (int t = segment.begin; t < segment.end; ++t) load_[t] += change;
    }
    values_[v] = x;
  }

  bool IsOver() const {
    for (size_t t = 0; t < load_.size(); ++t) {
      if (load_[t] > core_.capacity[t]) return true;
    }
    return false;
  }

  bool Repair() {
    while (IsOver()) {
      if (IsPast(deadline_)) return false;
      int best_v = -1;
      int best_x = 0;
      double best_rate = 0;
      for (int v = 0; v < core_.num_variables(); ++v) {
        if (core_.segments[v].empty()) continue;
        const std::vector<int64_t> costs = CostsOf(v);
        for (int x = 0; x < core_.domain[v]; ++x) {
          if (x == values_[v] || costs[x] >= kForbidden) continue;
          const int64_t relief = Relief(v, x);
          if (relief <= 0) continue;
          const int64_t more = std::max<int64_t>(costs[x] - costs[values_[v]], 0);
          const double rate =
              static_cast<double>(relief) / (static_cast<double>(more) + 1);
          if (rate <= best_rate) continue;
          best_rate = rate;
          best_v = v;
          best_x = x;
        }
      }
      if (best_v < 0) return false;
      Change(best_v, best_x);
    }
    return true;
  }

  bool Fits(int v, int x) const {
    for (const Segment& segment : core_.segments[v]) {
      const int64_t change = segment.bytes[x] - segment.bytes[values_[v]];
      if (change <= 0) continue;
      for (int t = segment.begin; t < segment.end; ++t) {
        if (load_[t] + change > core_.capacity[t]) return false;
      }
    }
    return true;
  }

  bool Improve() {
    bool improved = false;
    for (int v = 0; v < core_.num_variables(); ++v) {
      const std::vector<int64_t> costs = CostsOf(v);
      int best = values_[v];
      for (int x = 0; x < core_.domain[v]; ++x) {
        if (costs[x] < costs[best] && Fits(v, x)) best = x;
      }
      if (best == values_[v]) continue;
      Change(v, best);
      improved = true;
    }
    return improved;
  }

  const ChoiceProblem& core_;
  const Deadline deadline_;
  std::vector<int> values_;
  std::vector<int64_t> load_;
  std::vector<std::vector<const ChoiceProblem::Pair*>> pairs_of_;
};

}  // namespace

std::optional<std::vector<int>> RepairAndImprove(const ChoiceProblem& core,
                                                 std::vector<int> values,
                                                 Deadline deadline) {
  return LocalSearch(core, std::move(values), deadline).Run();
}

}  // namespace tofu
