#include "passes/search/cost/routes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "passes/search/cost/cost.h"

namespace tofu {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// The least sum over every sequence of states from `from` to the last one.
double TryAll(const std::vector<std::vector<double>>& costs, int from,
              std::vector<bool> seen) {
  const int last = static_cast<int>(costs.size()) - 1;
  if (from == last) return 0;
  seen[from] = true;
  double least = kNone;
  for (int to = 0; to <= last; ++to) {
    if (!seen[to]) least = std::min(least, costs[from][to] + TryAll(costs, to, seen));
  }
  return least;
}

TEST(Routes, TheCheapestWayIsWhatBruteForceFinds) {
  int with_stops = 0;
  int impossible = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const int states = 2 + static_cast<int>(random() % 5);
    std::vector<std::vector<double>> costs(states, std::vector<double>(states, kNone));
    for (auto& row : costs) {
      for (double& cost : row) {
        if (random() % 3 > 0) cost = static_cast<double>(random() % 20);
      }
    }
    const auto cost = [&](int from, int to) { return costs[from][to]; };
    const std::vector<int> way = CheapestWay(states, cost);
    const double least = TryAll(costs, 0, std::vector<bool>(states, false));
    if (least == kNone) {
      ++impossible;
      EXPECT_TRUE(way.empty());
      continue;
    }
    double sum = 0;
    int from = 0;
    for (int to : way) {
      sum += costs[from][to];
      from = to;
    }
    EXPECT_EQ(from, states - 1);
    EXPECT_EQ(sum, least);
    with_stops += way.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(with_stops, 50);
  EXPECT_GT(impossible, 10);
}

TEST(Routes, OfEqualWaysTheOneOfFewestMovesIsTaken) {
  const auto cost = [](int from, int to) { return to > from ? to - from : kNone; };
  EXPECT_EQ(CheapestWay(4, cost), std::vector<int>{3});
}

// A region that all workers need whole is divided within hosts, along each dimension.
TEST(Routes, StopsDivideWhatAHostNeeds) {
  const GroupBoxes whole =
      TileBoxes({8, 6}, {kReplicated, kReplicated, kReplicated}, {2, 2, 2});
  EXPECT_EQ(RouteStops(whole, {1, 0, 0}),
            (std::vector<TileSplits>{{{1, 0}, {2, 0}}, {{1, 1}, {2, 0}}}));
  // With three levels the innermost one's pieces are divided further.
  EXPECT_EQ(
      RouteStops(whole, {2, 1, 0}),
      (std::vector<TileSplits>{{{2, 0}}, {{2, 0}, {1, 0}}, {{2, 1}}, {{2, 1}, {1, 0}}}));
}

TEST(Routes, NoStopsWhereNothingIsGained) {
  const GroupBoxes whole = TileBoxes({8}, {kReplicated, kReplicated}, {2, 2});
  EXPECT_TRUE(RouteStops(whole, {0, 0}).empty());  // one level
  const GroupBoxes cut = TileBoxes({8}, {kReplicated, 0}, {2, 2});
  EXPECT_TRUE(RouteStops(cut, {1, 0}).empty());  // workers of a host need different rows
  const GroupBoxes one = TileBoxes({1}, {kReplicated, kReplicated}, {2, 2});
  EXPECT_TRUE(RouteStops(one, {1, 0}).empty());  // too few elements
}

TEST(Routes, StopsDivideTilesThatDifferByOneElement) {
  const GroupBoxes odd = TileBoxes({7}, {0, kReplicated}, {2, 2});
  EXPECT_EQ(RouteStops(odd, {1, 0}), (std::vector<TileSplits>{{{1, 0}}}));
}

TEST(Routes, WorkersOfDifferentHostsMayNeedDifferentRegions) {
  const GroupBoxes cut = TileBoxes({8}, {0, kReplicated}, {2, 2});
  EXPECT_EQ(RouteStops(cut, {1, 0}), (std::vector<TileSplits>{{{1, 0}}}));
}

// A host's workers first add up their own terms, in pieces of the boxes that they have
// made.
TEST(Routes, PartialSumsAreOfTheTermsOfAHost) {
  const Cuts whole = {kReplicated, kReplicated, kReplicated};
  const GroupBoxes made = TileBoxes({8, 6}, whole, {2, 2, 2});
  EXPECT_EQ(PartialStops(made, 0b111, {1, 0, 0}),
            (std::vector<TileSplits>{{{1, 0}, {2, 0}}, {{1, 1}, {2, 0}}}));
  EXPECT_EQ(
      PartialStops(made, 0b111, {2, 1, 0}),
      (std::vector<TileSplits>{{{2, 0}}, {{2, 0}, {1, 0}}, {{2, 1}}, {{2, 1}, {1, 0}}}));
  EXPECT_EQ(PartialStops(made, 0b101, {1, 0, 0}),
            (std::vector<TileSplits>{{{2, 0}}, {{2, 1}}}));
  EXPECT_TRUE(PartialStops(made, 0b110, {1, 0, 0}).empty());  // no terms elsewhere
  EXPECT_TRUE(PartialStops(made, 0b111, {0, 0, 0}).empty());
  // The boxes that they have made are cut within the host, at a step that reduces
  // nothing.
  const GroupBoxes cut = TileBoxes({8, 6}, {kReplicated, 0, kReplicated}, {2, 2, 2});
  EXPECT_EQ(PartialStops(cut, 0b101, {1, 0, 0}),
            (std::vector<TileSplits>{{{2, 0}}, {{2, 1}}}));
}

TEST(Routes, SumsLieInPiecesOverAllStepsAtLast) {
  const Cuts whole = {kReplicated, kReplicated, kReplicated};
  const GroupBoxes tiles = TileBoxes({8}, whole, {2, 2, 2});
  EXPECT_EQ(OutputStops(tiles, 0b111, {1, 0, 0}),
            (std::vector<TileSplits>{{{1, 0}, {2, 0}}, {{1, 0}, {2, 0}, {0, 0}}}));
  // Steps of a level that reduce nothing come first.
  EXPECT_EQ(OutputStops(tiles, 0b011, {1, 0, 0}),
            (std::vector<TileSplits>{{{2, 0}, {1, 0}}, {{2, 0}, {1, 0}, {0, 0}}}));
  const GroupBoxes cut = TileBoxes({8}, {kReplicated, 0, 0}, {2, 2, 2});
  EXPECT_EQ(OutputStops(cut, 0b111, {1, 0, 0}), (std::vector<TileSplits>{{{0, 0}}}));
  EXPECT_TRUE(OutputStops(tiles, 0b111, {0, 0, 0}).empty());
}

TEST(Routes, PiecesAreGatheredFromTheirParts) {
  const TileSplits half = {{2, 0}};
  const TileSplits quarter = {{2, 0}, {1, 0}};
  EXPECT_TRUE(MayGather(quarter, half));
  EXPECT_TRUE(MayGather(quarter, {}));
  EXPECT_FALSE(MayGather(half, quarter));
  EXPECT_FALSE(MayGather(half, half));
  EXPECT_FALSE(MayGather(quarter, {{1, 0}}));
}

}  // namespace
}  // namespace tofu
