#include "graph/box.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tofu {
namespace {

TEST(Box, VolumeOfAScalarIsOneAndOfAnInvertedBoxZero) {
  EXPECT_EQ(WholeBox({}).Volume(), 1);
  EXPECT_EQ((Box{{0, 5}, {4, 3}}).Volume(), 0);
}

TEST(Box, WorkerDigitsPutStepOneFirst) {
  EXPECT_EQ(WorkerDigits(5, {2, 3}), (std::vector<int>{1, 2}));
  EXPECT_EQ(WorkerDigits(0, {}), std::vector<int>());
}

TEST(Box, TilesOfANestedCutAreContiguousAndDisjoint) {
  const std::vector<int> parts = {3, 2};
  std::vector<int> owners(24, 0);
  for (int worker = 0; worker < 6; ++worker) {
    const Box tile = TileBox({24}, {0, 0}, parts, WorkerDigits(worker, parts));
    EXPECT_EQ(tile.begin[0], worker * 4);
    for (int64_t i = tile.begin[0]; i < tile.end[0]; ++i) ++owners[i];
  }
  EXPECT_EQ(owners, std::vector<int>(24, 1));
}

TEST(Box, PiecesAreContiguousAndDifferByOneElementAtMost) {
  for (int64_t extent = 0; extent <= 40; ++extent) {
    for (int parts = 1; parts <= 8; ++parts) {
      int64_t end = 3;
      for (int digit = 0; digit < parts; ++digit) {
        const Range piece = Piece({3, 3 + extent}, parts, digit);
        EXPECT_EQ(piece.begin, end);
        EXPECT_EQ(piece.size(), extent / parts + (digit < extent % parts ? 1 : 0));
        end = piece.end;
      }
      EXPECT_EQ(end, 3 + extent);
    }
  }
}

// It follows that the sizes of tiles do not depend on the order of the steps.
TEST(Box, PiecesOfPiecesHaveTheSizesOfPiecesCutAtOnce) {
  const auto sizes = [](int64_t extent, const std::vector<int>& parts, int workers) {
    std::vector<int64_t> volumes;
    const std::vector<int> cuts(parts.size(), 0);
    for (int w = 0; w < workers; ++w) {
      volumes.push_back(TileBox({extent}, cuts, parts, WorkerDigits(w, parts)).Volume());
    }
    EXPECT_EQ(volumes[0], *std::max_element(volumes.begin(), volumes.end()));
    EXPECT_EQ(volumes.back(), *std::min_element(volumes.begin(), volumes.end()));
    std::sort(volumes.begin(), volumes.end());
    return volumes;
  };
  for (int64_t extent = 1; extent <= 60; ++extent) {
    EXPECT_EQ(sizes(extent, {3, 2, 2}, 12), sizes(extent, {12}, 12)) << extent;
    EXPECT_EQ(sizes(extent, {2, 5}, 10), sizes(extent, {5, 2}, 10)) << extent;
  }
}

TEST(Box, AReplicatedStepLeavesTheTileWhole) {
  const Box tile = TileBox({4, 6}, {kReplicated, 1}, {2, 3}, {1, 2});
  EXPECT_EQ(tile, (Box{{0, 4}, {4, 6}}));
}

// x*2 + kh - 1 over x in [2, 4), kh in [0, 3): elements 3 to 7.
TEST(Box, AccessBoxEvaluatesBothBoundsAndFloors) {
  DimAccess halo{false,
                 {{{0, false, 2}, {1, false, 1}}, -1, 1},
                 {{{0, true, 2}, {1, true, 1}}, -1, 1}};
  const std::vector<Range> ranges = {{2, 4}, {0, 3}};
  EXPECT_EQ(AccessBox({halo, DimAccess()}, {9, 5}, ranges), (Box{{3, 0}, {8, 5}}));
  DimAccess half{false, {{{0, false, 1}}, -3, 2}, {{{0, true, 1}}, -3, 2}};
  EXPECT_EQ(AccessBox({half}, {9}, ranges), (Box{{-1}, {1}}));
}

TEST(Box, OverlapIsAnIntersectionWithElements) {
  const Box box = {{1, 2}, {4, 6}};
  for (int64_t begin = 0; begin < 8; ++begin) {
    for (int64_t end = begin; end < 8; ++end) {
      const Box other = {{begin, 1}, {end, 3}};
      EXPECT_EQ(Overlap(box, other), Intersect(box, other).Volume() > 0);
      const Box after = {{0, begin}, {2, end}};
      EXPECT_EQ(Overlap(box, after), Intersect(box, after).Volume() > 0);
    }
  }
  EXPECT_TRUE(Overlap(Box(), Box())) << "a scalar's one element";
}

TEST(Box, IntersectionAndContainment) {
  const Box a{{0, 2}, {4, 6}};
  EXPECT_EQ(Intersect(a, {{2, 0}, {9, 3}}), (Box{{2, 2}, {4, 3}}));
  EXPECT_TRUE(Contains(a, {{1, 3}, {2, 6}}));
  EXPECT_FALSE(Contains(a, {{1, 1}, {2, 6}}));
  EXPECT_TRUE(Contains(a, {{9, 9}, {9, 9}})) << "an empty box is contained anywhere";
}

}  // namespace
}  // namespace tofu
