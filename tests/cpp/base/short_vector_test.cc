#include "base/short_vector.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tofu {
namespace {

using Short = ShortVector<int64_t, 3>;

std::vector<int64_t> Items(const Short& list) { return {list.begin(), list.end()}; }

TEST(ShortVector, HoldsWhatAVectorHoldsWhateverItsLength) {
  for (size_t size = 0; size <= 8; ++size) {
    Short list;
    std::vector<int64_t> expected;
    for (size_t i = 0; i < size; ++i) {
      list.push_back(static_cast<int64_t>(10 * i));
      expected.push_back(static_cast<int64_t>(10 * i));
      ASSERT_EQ(list.back(), expected.back());
      ASSERT_EQ(Items(list), expected);
    }
    for (size_t i = 0; i < size; ++i) expected[i] = ++list[i];
    EXPECT_EQ(Items(list), expected);
    EXPECT_EQ(Items(Short(size, 7)), std::vector<int64_t>(size, 7));
  }
}

TEST(ShortVector, ACopyIsItsOwn) {
  for (const Short& list : {Short{1, 2}, Short{1, 2, 3}, Short{1, 2, 3, 4}}) {
    Short copy = list;
    EXPECT_EQ(copy, list);
    copy[0] = 9;
    EXPECT_NE(copy, list);
    EXPECT_EQ(list[0], 1);
    copy.push_back(5);
    EXPECT_EQ(copy.size(), list.size() + 1);
    const Short moved = std::move(copy);
    EXPECT_EQ(moved[0], 9);
    EXPECT_EQ(moved.back(), 5);
  }
}

TEST(ShortVector, ListsOfDifferentLengthsDiffer) {
  EXPECT_NE((Short{1, 2, 3}), (Short{1, 2}));
  EXPECT_NE((Short{1, 2, 3}), (Short{1, 2, 3, 4}));
  EXPECT_EQ(Short(), Short());
}

}  // namespace
}  // namespace tofu
