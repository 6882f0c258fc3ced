#include "solver/explore_limits.h"

#include <algorithm>
#include <utility>

namespace tofu {
namespace {

// A range of limits, from .. to, for which only the ends are known.
struct Gap {
  int64_t from = 0;
  int64_t to = 0;
  LimitPoint low;          // fits all these limits
  int64_t high_cost = 0;   // the least cost at to + 1
  bool is_halved = false;  // a search in the middle found `low` again

  double Unknown() const {
    return (static_cast<double>(to - from) + 1) *
           static_cast<double>(low.cost - high_cost);
  }
};

class Exploration {
 public:
  Exploration(const ExploreOptions& options, const SearchWithin& search)
      : options_(options), search_(search) {}

  LimitFrontier Run(const LimitPoint& cheapest, std::vector<LimitPoint> known) {
    known.push_back(cheapest);
    frontier_.points = Unbeaten(std::move(known));
    is_exact_ = cheapest.is_proven;
    const LimitPoint smallest = frontier_.points.front();
    AddGap({smallest.used, cheapest.used - 1, smallest, cheapest.cost});
    bool is_first = true;
    while (!gaps_.empty() && searches_ < options_.max_searches &&
           !IsPast(options_.deadline)) {
      Divide(TakeGap(), is_first);
      is_first = false;
    }
    frontier_.is_complete = gaps_.empty() && is_exact_ && smallest.used <= options_.least;
    frontier_.points = Unbeaten(std::move(frontier_.points));
    return std::move(frontier_);
  }

 private:
  void AddGap(const Gap& gap) {
    if (gap.from <= gap.to && gap.low.cost > gap.high_cost) gaps_.push_back(gap);
  }

  Gap TakeGap() {
    const auto widest = std::max_element(
        gaps_.begin(), gaps_.end(),
        [](const Gap& a, const Gap& b) { return a.Unknown() < b.Unknown(); });
    const Gap gap = *widest;
    gaps_.erase(widest);
    return gap;
  }

  void Divide(const Gap& gap, bool is_first) {
    const int64_t middle = gap.from + (gap.to - gap.from) / 2;
    const int64_t limit = is_first ? gap.from : gap.is_halved ? gap.to : middle;
    ++searches_;
    const LimitPoint point = search_(limit, BestWithin(limit));
    is_exact_ = is_exact_ && point.is_proven;
    frontier_.points.push_back(point);
    const bool is_low = point.cost == gap.low.cost;
    AddGap({gap.from, point.used - 1, gap.low, point.cost});
    AddGap({limit + 1, gap.to, point, gap.high_cost, is_low && !is_first});
  }

  // The cheapest point found within `limit`; the low end of a gap always fits.
  LimitPoint BestWithin(int64_t limit) const {
    LimitPoint best = frontier_.points.front();
    for (const LimitPoint& point : frontier_.points) {
      if (point.used <= limit && point.cost < best.cost) best = point;
    }
    return best;
  }

  static std::vector<LimitPoint> Unbeaten(std::vector<LimitPoint> points) {
    std::stable_sort(points.begin(), points.end(),
                     [](const LimitPoint& a, const LimitPoint& b) {
                       return a.used != b.used ? a.used < b.used : a.cost < b.cost;
                     });
    std::vector<LimitPoint> kept;
    for (const LimitPoint& point : points) {
      if (kept.empty() || point.cost < kept.back().cost) kept.push_back(point);
    }
    return kept;
  }

  const ExploreOptions& options_;
  const SearchWithin& search_;
  std::vector<Gap> gaps_;
  LimitFrontier frontier_;
  int searches_ = 0;
  bool is_exact_ = true;
};

}  // namespace

LimitFrontier ExploreLimits(const LimitPoint& cheapest, std::vector<LimitPoint> known,
                            const ExploreOptions& options, const SearchWithin& search) {
  return Exploration(options, search).Run(cheapest, std::move(known));
}

}  // namespace tofu
