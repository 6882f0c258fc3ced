#include "graph/cuts.h"

#include <gtest/gtest.h>

#include "graph/box.h"

namespace tofu {
namespace {

std::vector<Cuts> Enumerate(const Shape& extents, const Cuts& given,
                            WholeStep whole = WholeStep::kOnlyWhenNothingCanBeCut,
                            std::vector<int> parts = {}) {
  std::vector<int> dims;
  for (size_t d = 0; d < extents.size(); ++d) dims.push_back(static_cast<int>(d));
  bool complete = false;
  if (parts.empty()) parts.assign(given.size(), 2);
  std::vector<Cuts> all_cuts =
      EnumerateCuts(CutExtents(extents), dims, given, parts, whole, 1000, &complete);
  EXPECT_TRUE(complete);
  return all_cuts;
}

TEST(CutsTest, EveryDimensionThatIsCutEvenlyIsAnAlternative) {
  EXPECT_EQ(Enumerate({4, 3, 5, 2}, {kFree}), (std::vector<Cuts>{{0}, {2}, {3}}))
      << "of 3 elements, one half would have a third more than the mean";
  EXPECT_EQ(Enumerate({4, 3, 2}, {kFree}), (std::vector<Cuts>{{0}, {2}}));
  EXPECT_EQ(Enumerate({2, 2}, {kFree, kFree}), (std::vector<Cuts>{{0, 1}, {1, 0}}));
}

TEST(CutsTest, StaysWholeOnlyWhereNothingCanBeCut) {
  EXPECT_EQ(Enumerate({1}, {kFree}), (std::vector<Cuts>{{kReplicated}}));
  EXPECT_EQ(Enumerate({3, 1}, {kFree}), (std::vector<Cuts>{{0}})) << "unevenly";
  EXPECT_EQ(Enumerate({2}, {kFree, kFree}), (std::vector<Cuts>{{0, kReplicated}}));
  EXPECT_EQ(Enumerate({4}, {kFree}, WholeStep::kAlways),
            (std::vector<Cuts>{{0}, {kReplicated}}));
}

// Steps 1 and 3 leave one of 6 elements, so step 2 cannot cut the dimension, too.
TEST(CutsTest, FreeStepLeavesGivenLaterCutsPossible) {
  EXPECT_EQ(Enumerate({6}, {0, kFree, 0}), (std::vector<Cuts>{{0, kReplicated, 0}}));
  EXPECT_EQ(Enumerate({6}, {kFree, 0, kReplicated}),
            (std::vector<Cuts>{{0, 0, kReplicated}}));
}

// Eight parts of 10 elements would be uneven, and the other dimension can be cut.
TEST(CutsTest, FreeStepLeavesGivenLaterCutsEven) {
  EXPECT_EQ(Enumerate({10, 64}, {kFree, 0, 0}), (std::vector<Cuts>{{1, 0, 0}}));
  EXPECT_EQ(Enumerate({10, 64}, {0, 0, 0}), (std::vector<Cuts>{{0, 0, 0}}))
      << "all given";
  EXPECT_EQ(Enumerate({10}, {kFree, 0, 0}), (std::vector<Cuts>{{0, 0, 0}}))
      << "nothing else can be cut";
}

// Two cuts of 8 elements leave 2, too few for 3 parts; one cut leaves 4.
TEST(CutsTest, FreeStepLeavesNothingToCutWhereAGivenStepIsWhole) {
  const Cuts given = {kFree, 0, kReplicated};
  constexpr WholeStep kRarely = WholeStep::kOnlyWhenNothingCanBeCut;
  EXPECT_EQ(Enumerate({8, 2}, given, kRarely, {2, 2, 3}),
            (std::vector<Cuts>{{0, 0, kReplicated}}));
  EXPECT_EQ(Enumerate({8, 2}, given, WholeStep::kAlways, {2, 2, 3}).size(), 3U);
  EXPECT_EQ(Enumerate({32, 2}, given, kRarely, {2, 2, 3}),
            (std::vector<Cuts>{{0, 0, kReplicated}, {1, 0, kReplicated}}))
      << "nothing else is possible";
  EXPECT_EQ(Enumerate({2}, {kReplicated, kFree}), (std::vector<Cuts>{{kReplicated, 0}}))
      << "whole first and cut later, but nothing is left to cut";
}

TEST(CutsTest, WhereAllPartsMustBeEqualOnlyWhatDividesIsCut) {
  CutExtents extents({6, 4, 9}, true);
  EXPECT_EQ(extents.Choices({0, 1, 2}, 2), (std::vector<int>{0, 1}));
  extents.Cut(0, 2);
  EXPECT_FALSE(extents.CanCut(0, 2)) << "3 are left";
  extents.Undo(0, 2);
  EXPECT_TRUE(extents.CanCut(0, 2));
}

TEST(CutsTest, EvennessCountsAllStepsThatCutADimension) {
  CutExtents extents({10});
  EXPECT_TRUE(extents.CutsEvenly(0, 2));
  extents.Cut(0, 2);
  EXPECT_TRUE(extents.CutsEvenly(0, 2)) << "3, 3, 2, 2";
  extents.Cut(0, 2);
  EXPECT_FALSE(extents.CutsEvenly(0, 2)) << "2, 2, 1, 1, ...";
  EXPECT_TRUE(extents.CanCut(0, 2));
  EXPECT_EQ(extents.left(0), 2);
}

// Over 6 parts, 6 elements are even; 8 and 7 are not.
TEST(CutsTest, ADimensionMayBeCutUnevenlyBesidesThoseThatAreCutEvenly) {
  CutExtents extents({8, 6, 7}, false, 0);
  EXPECT_EQ(extents.Choices({0, 1, 2}, 6), (std::vector<int>{0, 1}))
      << "7 may not be cut unevenly";
  EXPECT_EQ(extents.Choices({0, 1}, 9), std::vector<int>{}) << "not enough elements";
  EXPECT_EQ(CutExtents({8, 7}, false, 0).Choices({0, 1}, 6), (std::vector<int>{0, 1}))
      << "none is cut evenly";
  bool complete = false;
  const auto enumerate = [&](const CutExtents& of) {
    return EnumerateCuts(of, {0, 1}, {kFree, kFree}, {3, 2},
                         WholeStep::kOnlyWhenNothingCanBeCut, 1000, &complete);
  };
  EXPECT_EQ(enumerate(CutExtents({8, 6})), (std::vector<Cuts>{{0, 1}, {1, 0}, {1, 1}}));
  EXPECT_EQ(enumerate(CutExtents({8, 6}, false, 0)),
            (std::vector<Cuts>{{0, 1}, {0, 0}, {1, 0}, {1, 1}}));
}

TEST(Cuts, HoldAsManyStepsAsThereCanBe) {
  Cuts cuts(Cuts::kMaxSteps, kFree);
  EXPECT_EQ(cuts, Cuts(std::vector<int>(Cuts::kMaxSteps, kFree)));
  EXPECT_EQ(std::vector<int>(cuts).size(), Cuts::kMaxSteps);
  EXPECT_THROW(cuts.push_back(0), InternalError);
  EXPECT_NE(cuts, Cuts());
}

}  // namespace
}  // namespace tofu
