#include "graph/cuts.h"

#include <gtest/gtest.h>

#include "graph/box.h"

namespace tofu {
namespace {

std::vector<Cuts> Enumerate(const std::vector<int64_t>& extents, const Cuts& given,
                            WholeStep whole = WholeStep::kOnlyWhenNothingDivides) {
  std::vector<int> dims;
  for (size_t d = 0; d < extents.size(); ++d) dims.push_back(static_cast<int>(d));
  bool complete = false;
  const std::vector<int> parts(given.size(), 2);
  std::vector<Cuts> found =
      EnumerateCuts(extents, dims, given, parts, whole, 1000, &complete);
  EXPECT_TRUE(complete);
  return found;
}

TEST(CutsTest, EveryDividingDimensionIsAnAlternative) {
  EXPECT_EQ(Enumerate({4, 3, 2}, {kFree}), (std::vector<Cuts>{{0}, {2}}));
  EXPECT_EQ(Enumerate({2, 2}, {kFree, kFree}), (std::vector<Cuts>{{0, 1}, {1, 0}}));
}

TEST(CutsTest, StaysWholeOnlyWhereNothingDivides) {
  EXPECT_EQ(Enumerate({3}, {kFree}), (std::vector<Cuts>{{kReplicated}}));
  EXPECT_EQ(Enumerate({2}, {kFree, kFree}), (std::vector<Cuts>{{0, kReplicated}}));
  EXPECT_EQ(Enumerate({4}, {kFree}, WholeStep::kAlways),
            (std::vector<Cuts>{{0}, {kReplicated}}));
}

// 12 = 2 * 2 * 3: cut at steps 1 and 3, it cannot be cut at step 2 as well.
TEST(CutsTest, FreeStepLeavesGivenLaterCutsPossible) {
  EXPECT_EQ(Enumerate({12}, {0, kFree, 0}), (std::vector<Cuts>{{0, kReplicated, 0}}));
  EXPECT_EQ(Enumerate({12}, {kFree, 0, kReplicated}),
            (std::vector<Cuts>{{0, 0, kReplicated}}));
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
