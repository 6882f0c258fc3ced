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

TEST(ShortVector, AMovedListIsEmptyAndUsable) {
  for (Short list : {Short{1, 2}, Short{1, 2, 3, 4}}) {
    Short target = {9, 9, 9, 9, 9};
    const std::vector<int64_t> expected = Items(list);
    target = std::move(list);
    EXPECT_EQ(Items(target), expected);
    EXPECT_TRUE(list.empty());  // NOLINT: a list that was moved from is empty
    for (int64_t i = 0; i < 6; ++i) list.push_back(i);
    EXPECT_EQ(Items(list), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(Items(target), expected);
  }
}

TEST(ShortVector, ChangesAsAVectorDoes) {
  Short list;
  std::vector<int64_t> expected;
  const auto check = [&] { ASSERT_EQ(Items(list), expected); };
  for (int64_t item : {5, 6, 7, 8}) {
    EXPECT_EQ(*list.insert(list.begin() + list.size() / 2, item), item);
    expected.insert(expected.begin() + static_cast<std::ptrdiff_t>(expected.size() / 2),
                    item);
    check();
  }
  EXPECT_EQ(*list.erase(list.begin() + 1), expected[2]);
  expected.erase(expected.begin() + 1);
  check();
  for (size_t size : {5, 2, 4}) {
    list.resize(size, 3);
    expected.resize(size, 3);
    check();
  }
  list.assign(2, 8);
  expected.assign(2, 8);
  check();
  list.emplace_back(4) = 1;
  expected.push_back(1);
  check();
  list.pop_back();
  expected.pop_back();
  check();
  list.assign(expected.rbegin(), expected.rend());
  check();
}

TEST(ShortVector, IsOrderedAsAVectorIs) {
  EXPECT_LT((Short{1, 2}), (Short{1, 3}));
  EXPECT_LT((Short{1, 2}), (Short{1, 2, 0, 0}));
  EXPECT_FALSE((Short{2}) < (Short{1, 2, 3, 4}));
}

TEST(ShortVector, ListsOfDifferentLengthsDiffer) {
  EXPECT_NE((Short{1, 2, 3}), (Short{1, 2}));
  EXPECT_NE((Short{1, 2, 3}), (Short{1, 2, 3, 4}));
  EXPECT_EQ(Short(), Short());
}

}  // namespace
}  // namespace tofu
