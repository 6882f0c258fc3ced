#include "passes/partition/root_fetches.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "support/tiles.h"

namespace tofu {
namespace {

constexpr int64_t kFloat = 4;

// A tensor of which every worker has a tile.
class RootFetchesTest : public testing::Test {
 protected:
  RootFetchesTest(Shape shape, std::vector<int> cuts, std::vector<int> parts)
      : shape_(std::move(shape)), cuts_(std::move(cuts)), parts_(std::move(parts)) {
    for (const FetchSource& tile : TilesNear(0, shape_, cuts_, parts_)) {
      tiles_.push_back(tile.box);
    }
  }

  FetchSpec Fetch(int worker, const Box& region) const {
    return PlanFetch(worker, region, WholeBox(shape_),
                     TilesNear(worker, shape_, cuts_, parts_));
  }

  std::vector<RootFetches> Plan(const std::vector<FetchSpec>& specs, int turn = 0,
                                int64_t max_bytes = 1 << 10) const {
    const auto planner = [&](int worker, const Box& region) {
      return Fetch(worker, region);
    };
    return PlanRootFetches(specs, planner, kFloat, max_bytes, turn);
  }

  // All workers read the same region.
  std::vector<FetchSpec> AllRead(const Box& region) const {
    std::vector<FetchSpec> specs;
    for (size_t w = 0; w < tiles_.size(); ++w) {
      specs.push_back(Fetch(static_cast<int>(w), region));
    }
    return specs;
  }

 private:
  const Shape shape_;
  const std::vector<int> cuts_;
  const std::vector<int> parts_;
  std::vector<Box> tiles_;
};

// 16 numbers over four workers.
class FourTiles : public RootFetchesTest {
 protected:
  FourTiles() : RootFetchesTest({16}, {0}, {4}) {}
};

TEST_F(FourTiles, OneWorkerAssemblesWhatAllRead) {
  const auto found = Plan(AllRead({{0}, {16}}), 2);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].collect.worker, 2);
  EXPECT_EQ(found[0].collect.region, (Box{{0}, {16}}));
  EXPECT_EQ(FetchedElements(found[0].collect), 12);
  ASSERT_EQ(found[0].regions.size(), 4u);
  for (int w = 0; w < 4; ++w) {
    const FetchSpec& spec = found[0].regions[w];
    EXPECT_EQ(spec.worker, w);
    ASSERT_EQ(spec.pieces.size(), 1u);
    EXPECT_EQ(spec.pieces[0].source, 2);
    EXPECT_EQ(FetchedElements(spec), w == 2 ? 0 : 16);
  }
}

TEST_F(FourTiles, RootsTakeTurns) {
  for (int turn = 0; turn < 8; ++turn) {
    EXPECT_EQ(Plan(AllRead({{0}, {16}}), turn).at(0).collect.worker, turn % 4);
  }
}

TEST_F(FourTiles, ReadersGetTheirOwnRegions) {
  const std::vector<FetchSpec> specs = {Fetch(0, {{2}, {12}}), Fetch(1, {{1}, {14}}),
                                        Fetch(2, {{1}, {16}})};
  const auto found = Plan(specs, 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].collect.region, (Box{{1}, {16}}));
  EXPECT_EQ(found[0].regions[0].region, (Box{{2}, {12}}));
  EXPECT_EQ(found[0].regions[0].pieces[0].from, (Box{{1}, {11}}));
}

TEST_F(FourTiles, AReaderOfItsOwnTileIsLeftOut) {
  std::vector<FetchSpec> specs = AllRead({{0}, {16}});
  specs[3] = Fetch(3, {{13}, {15}});
  const auto found = Plan(specs);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].regions.size(), 3u);
}

TEST_F(FourTiles, LargeRegionsTakeTheDirectWay) {
  EXPECT_EQ(Plan(AllRead({{0}, {16}}), 0, 64).size(), 1u);
  EXPECT_TRUE(Plan(AllRead({{0}, {16}}), 0, 63).empty());
}

TEST_F(FourTiles, WhatOneWorkerOwnsIsReadFromIt) {
  EXPECT_TRUE(Plan(AllRead({{5}, {7}})).empty());
}

TEST_F(FourTiles, NeighboursExchangeHalosDirectly) {
  std::vector<FetchSpec> specs;
  for (int w = 0; w < 3; ++w) specs.push_back(Fetch(w, {{4 * w}, {4 * w + 5}}));
  EXPECT_TRUE(Plan(specs).empty());
}

TEST_F(FourTiles, ElementsOutsideTheTensorAreNotCollected) {
  EXPECT_TRUE(Plan(AllRead({{-1}, {16}})).empty());
}

TEST_F(FourTiles, NothingIsFetched) {
  EXPECT_TRUE(Plan({}).empty());
  EXPECT_TRUE(Plan({Fetch(0, {{0}, {4}}), Fetch(1, {{0}, {0}})}).empty());
}

class TwoTiles : public RootFetchesTest {
 protected:
  TwoTiles() : RootFetchesTest({16}, {0}, {2}) {}
};

TEST_F(TwoTiles, TwoWorkersExchangeDirectly) {
  EXPECT_TRUE(Plan(AllRead({{0}, {16}})).empty());
}

// Two groups of four workers share a half each; every worker has a quarter of it.
class TwoGroups : public RootFetchesTest {
 protected:
  TwoGroups() : RootFetchesTest({32}, {0, 0}, {2, 4}) {}
};

TEST_F(TwoGroups, EachGroupHasItsOwnRoot) {
  std::vector<FetchSpec> specs;
  for (int w = 0; w < 8; ++w) {
    specs.push_back(Fetch(w, {{w / 4 * 16}, {w / 4 * 16 + 16}}));
  }
  const auto found = Plan(specs, 1, 64);
  ASSERT_EQ(found.size(), 2u);
  for (int group = 0; group < 2; ++group) {
    EXPECT_EQ(found[group].collect.worker, 4 * group + 1);
    EXPECT_EQ(found[group].collect.region, (Box{{16 * group}, {16 * group + 16}}));
    EXPECT_EQ(found[group].regions.size(), 4u);
  }
}

TEST(RootFetches, ARootReducesTermsInTheOrderOfAllOthers) {
  const auto planner = [](int worker, const Box& region) {
    std::vector<std::vector<FetchSource>> terms;
    for (int w = 0; w < 3; ++w) terms.push_back({{w, {{0}, {6}}}});
    return PlanReduction(worker, region, region, terms, Reducer::kSum);
  };
  std::vector<FetchSpec> specs;
  for (int w = 0; w < 3; ++w) specs.push_back(planner(w, {{2 * w}, {2 * w + 2}}));
  const auto found = PlanRootFetches(specs, planner, kFloat, 24, 1);
  ASSERT_EQ(found.size(), 1u);
  const FetchSpec& collect = found[0].collect;
  EXPECT_EQ(collect.num_terms, 3);
  ASSERT_EQ(collect.pieces.size(), 3u);
  for (int term = 0; term < 3; ++term) {
    EXPECT_EQ(collect.pieces[term].source, term);
    EXPECT_EQ(collect.pieces[term].term, term);
  }
  EXPECT_EQ(found[0].regions[2].num_terms, 1);
  EXPECT_EQ(found[0].regions[2].region, (Box{{4}, {6}}));
}

}  // namespace
}  // namespace tofu
