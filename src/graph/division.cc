#include "graph/division.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace tofu {
namespace {

// For a multiple, a piece may grow by at most a fiftieth.
constexpr int64_t kFiftieths = 51;

// The begins of pieces of at least `least` elements, on multiples, and the end of the
// last piece. Without shares, pieces are equal.
std::vector<int64_t> Cut(int64_t size, int parts, const std::vector<int>& shares,
                         int64_t least, int64_t multiple) {
  const int64_t all = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  std::vector<int64_t> bounds = {0};
  int64_t sum = 0;
  for (int part = 1; part <= parts; ++part) {
    int64_t bound = 0;
    if (shares.empty()) {
      const int64_t units = (size + multiple - 1) / multiple;
      bound = Piece({0, units}, parts, part - 1).end * multiple;
    } else {
      sum += shares[static_cast<size_t>(part) - 1];
      bound = (2 * size * sum + all * multiple) / (2 * all * multiple) * multiple;
    }
    const int64_t lowest = bounds.back() + least;
    const int64_t highest = std::max(lowest, size - (parts - part) * least);
    bounds.push_back(part == parts ? size : std::clamp(bound, lowest, highest));
  }
  return bounds;
}

}  // namespace

Range Piece(const Range& range, int parts, int digit) {
  TOFU_CHECK(digit >= 0 && digit < parts) << "piece " << digit << " of " << parts;
  const int64_t size = range.size() / parts;
  const int64_t larger = range.size() % parts;
  const int64_t begin = range.begin + size * digit + std::min<int64_t>(digit, larger);
  return {begin, begin + size + (digit < larger ? 1 : 0)};
}

const std::vector<int>& TileShares::of(size_t step) const {
  static const std::vector<int> kEqual;
  return step < of_steps.size() ? of_steps[step] : kEqual;
}

TileShares Normal(TileShares shares) {
  bool is_equal = true;
  for (std::vector<int>& step : shares.of_steps) {
    const bool differs = std::any_of(step.begin(), step.end(),
                                     [&](int share) { return share != step.front(); });
    if (!differs) step.clear();
    is_equal = is_equal && !differs;
  }
  if (is_equal) shares.of_steps.clear();
  return shares;
}

Range Division::Piece(const Range& range, size_t step, int digit) const {
  TOFU_CHECK(step < steps_) << "step " << step << " of " << steps_;
  if (shares_ == nullptr) return tofu::Piece(range, parts_[step], digit);
  TOFU_CHECK(digit >= 0 && digit < parts_[step])
      << "piece " << digit << " of " << parts_[step];
  const std::vector<int64_t> bounds = Bounds(range.size(), step);
  const size_t part = static_cast<size_t>(digit);
  return {range.begin + bounds[part], range.begin + bounds[part + 1]};
}

std::vector<int64_t> Division::Bounds(int64_t size, size_t step) const {
  int64_t least = 1;  // the fewest elements that all later steps can cut
  for (size_t later = step + 1; later < steps_; ++later) least *= parts_[later];
  least = std::min(least, size / parts_[step]);
  std::vector<int64_t> bounds = Cut(size, parts_[step], shares_->of(step), least, 1);
  if (shares_->multiple == 1) return bounds;
  std::vector<int64_t> aligned =
      Cut(size, parts_[step], shares_->of(step), 0, shares_->multiple);
  for (size_t part = 0; part + 1 < bounds.size(); ++part) {
    const int64_t before = bounds[part + 1] - bounds[part];
    const int64_t after = aligned[part + 1] - aligned[part];
    if (after < least || (kFiftieths - 1) * after > kFiftieths * before) return bounds;
  }
  return aligned;
}

}  // namespace tofu
