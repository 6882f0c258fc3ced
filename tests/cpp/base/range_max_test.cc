#include "base/range_max.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tofu {
namespace {

TEST(RangeMax, EqualsACountByHand) {
  std::mt19937 random(3);
  for (int size = 1; size <= 20; ++size) {
    std::vector<int64_t> values(size);
    for (int64_t& value : values) value = static_cast<int64_t>(random() % 100) + 100;
    RangeMax fast(values);
    for (int i = 0; i < 100; ++i) {
      int begin = static_cast<int>(random() % size);
      int end = static_cast<int>(random() % size);
      if (begin > end) std::swap(begin, end);
      const int64_t added = static_cast<int64_t>(random() % 3) - 1;
      fast.Add(begin, end, added);
      for (int at = begin; at <= end; ++at) values[at] += added;
      begin = static_cast<int>(random() % (end + 1));
      ASSERT_EQ(fast.Max(begin, end),
                *std::max_element(values.begin() + begin, values.begin() + end + 1));
    }
  }
}

TEST(RangeMax, AnEmptyRangeHasNoEffectAndIsZero) {
  RangeMax values({5, 7});
  values.Add(1, 0, 10);
  EXPECT_EQ(values.Max(0, 1), 7);
  EXPECT_EQ(values.Max(1, 0), 0);
}

}  // namespace
}  // namespace tofu
