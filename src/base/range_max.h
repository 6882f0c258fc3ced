// A segment tree over values of at least 0 at positions 0 to size - 1: adds to a range,
// and finds the maximum of a range, in logarithmic time. Both ends are inclusive.
#ifndef TOFU_BASE_RANGE_MAX_H_
#define TOFU_BASE_RANGE_MAX_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tofu {

class RangeMax {
 public:
  explicit RangeMax(const std::vector<int64_t>& values)
      : size_(static_cast<int>(values.size())),
        most_(4 * values.size() + 4, 0),
        added_(4 * values.size() + 4, 0) {
    if (size_ > 0) Build(values, 1, 0, size_ - 1);
  }

  void Add(int begin, int end, int64_t value) {
    if (begin <= end) Add(begin, end, value, 1, 0, size_ - 1);
  }
  int64_t Max(int begin, int end) const {
    return begin <= end ? Max(begin, end, 1, 0, size_ - 1) : 0;
  }

 private:
  void Build(const std::vector<int64_t>& values, size_t at, int low, int high) {
    if (low == high) {
      most_[at] = values[low];
      return;
    }
    const int middle = (low + high) / 2;
    Build(values, 2 * at, low, middle);
    Build(values, 2 * at + 1, middle + 1, high);
    most_[at] = std::max(most_[2 * at], most_[2 * at + 1]);
  }

  void Add(int begin, int end, int64_t value, size_t at, int low, int high) {
    if (end < low || high < begin) return;
    if (begin <= low && high <= end) {
      most_[at] += value;
      added_[at] += value;
      return;
    }
    const int middle = (low + high) / 2;
    Add(begin, end, value, 2 * at, low, middle);
    Add(begin, end, value, 2 * at + 1, middle + 1, high);
    most_[at] = added_[at] + std::max(most_[2 * at], most_[2 * at + 1]);
  }

  int64_t Max(int begin, int end, size_t at, int low, int high) const {
    if (end < low || high < begin) return 0;
    if (begin <= low && high <= end) return most_[at];
    const int middle = (low + high) / 2;
    return added_[at] + std::max(Max(begin, end, 2 * at, low, middle),
                                 Max(begin, end, 2 * at + 1, middle + 1, high));
  }

  const int size_;
  std::vector<int64_t> most_;   // maximum of a tree node, without additions above it
  std::vector<int64_t> added_;  // added to the whole range of a tree node
};

}  // namespace tofu

#endif  // TOFU_BASE_RANGE_MAX_H_
