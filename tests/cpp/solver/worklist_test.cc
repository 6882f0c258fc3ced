#include "solver/worklist.h"

#include <gtest/gtest.h>

#include <vector>

namespace tofu {
namespace {

std::vector<int> Rest(Worklist* list) {
  std::vector<int> taken;
  for (int item = -1; (item = list->Take(item)) >= 0;) taken.push_back(item);
  return taken;
}

TEST(Worklist, HoldsAllItemsAtFirstAndEachOnce) {
  Worklist list(3);
  EXPECT_EQ(Rest(&list), std::vector<int>({0, 1, 2}));
  EXPECT_EQ(Rest(&list), std::vector<int>());
  list.Add(1);
  list.Add(1);
  EXPECT_EQ(Rest(&list), std::vector<int>({1}));
  list.AddAll();
  EXPECT_EQ(Rest(&list), std::vector<int>({0, 1, 2}));
}

TEST(Worklist, APassMeetsWhatItAddsAboveItsPosition) {
  Worklist list(4);
  EXPECT_EQ(list.Take(1), 2);
  list.Add(3);
  list.Add(1);
  EXPECT_EQ(list.Take(2), 3);
  EXPECT_EQ(list.Take(3), -1);
  EXPECT_EQ(Rest(&list), std::vector<int>({0, 1}));
}

TEST(Worklist, GrowsWithItsItems) {
  Worklist list(0);
  EXPECT_EQ(list.Take(-1), -1);
  list.Add(5);
  EXPECT_EQ(Rest(&list), std::vector<int>({5}));
}

}  // namespace
}  // namespace tofu
