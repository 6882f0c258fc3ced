#include "graph/reduction_tiles.h"

#include <gtest/gtest.h>

#include <vector>

namespace tofu {
namespace {

TEST(ReductionTilings, BeginWithEachDimensionThatDividesEvenly) {
  const std::vector<SharedStep> steps = {{0, 2, true}, {1, 2, true}};
  EXPECT_EQ(ReductionTilings({8, 5, 4}, steps),
            (std::vector<TileSplits>{{{0, 0}, {1, 0}}, {{0, 2}, {1, 2}}}));
}

TEST(ReductionTilings, TakeTheNextDimensionWhenOneNoLongerDivides) {
  const std::vector<SharedStep> steps = {{0, 2, true}, {1, 2, true}};
  EXPECT_EQ(ReductionTilings({2, 6}, steps),
            (std::vector<TileSplits>{{{0, 0}, {1, 1}}, {{0, 1}, {1, 0}}}));
}

TEST(ReductionTilings, LeaveOutAStepForWhichThereAreTooFewElements) {
  EXPECT_EQ(ReductionTilings({2, 2}, {{0, 3, true}, {1, 2, true}}),
            (std::vector<TileSplits>{{{1, 0}}, {{1, 1}}}));
  EXPECT_TRUE(ReductionTilings({1, 1}, {{0, 2, true}}).empty());
  EXPECT_TRUE(ReductionTilings({}, {{0, 2, true}}).empty());
}

TEST(ReductionTilings, DivideUnevenlyWhereNoDimensionDivides) {
  EXPECT_EQ(ReductionTilings({5, 7}, {{0, 2, true}}),
            (std::vector<TileSplits>{{{0, 0}}, {{0, 1}}}));
  EXPECT_EQ(ReductionTilings({5, 8}, {{0, 2, true}}),
            (std::vector<TileSplits>{{{0, 1}}}));
}

TEST(ReductionTilings, StepsThatReduceNothingAreOutermost) {
  EXPECT_EQ(ReductionTilings({24}, {{0, 3, true}, {1, 2, false}}),
            (std::vector<TileSplits>{{{1, 0}, {0, 0}}}));
}

// Two steps of equal parts and one of more, each reducing or not. Their order must not
// change the extents, or bounds that forget the order would be wrong.
TEST(ReductionTilings, ExtentsDependOnPartsAlone) {
  const std::vector<int> parts = {2, 3, 2};
  const Shape tile = {6, 4};
  for (size_t first : {0U, 1U}) {
    Shape expected;
    for (int reducing = 0; reducing < 8; ++reducing) {
      std::vector<SharedStep> steps;
      for (int i : {0, 1, 2}) {
        steps.push_back({i, parts[i], ((reducing >> i) & 1) != 0});
      }
      const Shape piece =
          PieceBox(WholeBox(tile), ReductionTilings(tile, steps)[first], parts, {0, 0, 0})
              .Extents();
      if (reducing == 0) expected = piece;
      EXPECT_EQ(piece, expected) << reducing;
    }
  }
}

TEST(PieceBox, IsAPieceOfThePieceBefore) {
  const Box tile = {{8, 0}, {16, 5}};
  const Box piece = PieceBox(tile, {{1, 0}, {0, 0}}, {2, 4}, {1, 2});
  EXPECT_EQ(piece, (Box{{13, 0}, {14, 5}}));
}

}  // namespace
}  // namespace tofu
