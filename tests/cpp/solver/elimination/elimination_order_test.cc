#include "solver/elimination/elimination_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace tofu {
namespace {

constexpr int64_t kLarge = 1 << 20;

using Edges = std::vector<std::pair<int, int>>;

TEST(EliminationOrder, AChainLosesItsEndsAndTiesGoToTheLowestNumber) {
  const EliminationOrder order =
      MinFillOrder({2, 2, 2, 2}, {{0, 1}, {1, 2}, {2, 3}}, kLarge);
  EXPECT_EQ(order.order, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(order.exact);
  EXPECT_EQ(order.work, 2 * 2 + 2 * 2 + 2 * 2 + 1 * 2);
}

// The centre's neighbours would need three new edges; a leaf's need none.
TEST(EliminationOrder, TheCentreOfAStarWaitsForAllButOneOfItsNeighbours) {
  const EliminationOrder order =
      MinFillOrder({2, 2, 2, 2}, {{0, 1}, {0, 2}, {3, 0}}, kLarge);
  EXPECT_EQ(order.order, (std::vector<int>{1, 2, 0, 3}));
}

TEST(EliminationOrder, OfEqualFillTheSmallestTableComesFirst) {
  // In a cycle every variable needs one new edge.
  const EliminationOrder order =
      MinFillOrder({9, 2, 9, 3}, {{0, 1}, {1, 2}, {2, 3}, {3, 0}}, kLarge);
  EXPECT_EQ(order.order[0], 0) << "leaves 2 * 3 cells, 1 and 3 leave 9 * 9";
}

TEST(EliminationOrder, AVariableWithALargeTableAddsNoEdges) {
  const std::vector<int> domain = {4, 4, 4, 4};
  const Edges cycle = {{0, 1}, {1, 2}, {2, 3}, {3, 0}};
  EXPECT_TRUE(MinFillOrder(domain, cycle, 16).exact);
  const EliminationOrder order = MinFillOrder(domain, cycle, 15);
  EXPECT_FALSE(order.exact);
  // After 0 the chain 1, 2, 3 is left instead of a triangle.
  EXPECT_EQ(order.work, 15 * 4 + 4 * 4 + 4 * 4 + 4);
}

TEST(EliminationOrder, RepeatedEdgesCountOnce) {
  const Edges once = {{0, 1}, {1, 2}};
  const Edges twice = {{0, 1}, {1, 0}, {1, 2}, {1, 2}};
  const EliminationOrder a = MinFillOrder({3, 3, 3}, once, kLarge);
  const EliminationOrder b = MinFillOrder({3, 3, 3}, twice, kLarge);
  EXPECT_EQ(a.order, b.order);
  EXPECT_EQ(a.work, b.work);
}

TEST(EliminationOrder, AfterTheDeadlineTheRestFollowsByNumber) {
  constexpr int kCount = 500;
  Edges star;
  for (int v = 1; v < kCount; ++v) star.emplace_back(0, v);
  const EliminationOrder order =
      MinFillOrder(std::vector<int>(kCount, 2), star, kLarge, Deadline());
  ASSERT_EQ(order.order.size(), kCount);
  EXPECT_FALSE(order.exact);
  EXPECT_EQ(order.order.back(), kCount - 1);
  EXPECT_NE(order.order.front(), 0) << "what was decided before it looked at the clock";
}

}  // namespace
}  // namespace tofu
