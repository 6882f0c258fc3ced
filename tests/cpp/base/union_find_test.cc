#include "base/union_find.h"

#include <gtest/gtest.h>

namespace tofu {
namespace {

TEST(UnionFind, EveryMemberStartsAlone) {
  UnionFind sets(3);
  for (int x : {0, 1, 2}) EXPECT_EQ(sets.Find(x), x);
}

TEST(UnionFind, TheLeastMemberStandsForItsSetInAnyOrderOfMerging) {
  UnionFind up(5);
  up.Merge(1, 2);
  up.Merge(2, 3);
  up.Merge(3, 4);
  UnionFind down(5);
  down.Merge(4, 3);
  down.Merge(3, 2);
  down.Merge(2, 1);
  for (int x : {1, 2, 3, 4}) {
    EXPECT_EQ(up.Find(x), 1);
    EXPECT_EQ(down.Find(x), 1);
  }
  EXPECT_EQ(up.Find(0), 0);
}

TEST(UnionFind, SaysWhetherTwoSetsBecameOne) {
  UnionFind sets(4);
  EXPECT_TRUE(sets.Merge(0, 1));
  EXPECT_TRUE(sets.Merge(2, 3));
  EXPECT_FALSE(sets.Merge(1, 0));
  EXPECT_TRUE(sets.Merge(3, 1));
  EXPECT_FALSE(sets.Merge(2, 0));
}

}  // namespace
}  // namespace tofu
