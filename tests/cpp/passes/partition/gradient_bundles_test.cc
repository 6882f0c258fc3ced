#include "passes/partition/gradient_bundles.h"

#include <gtest/gtest.h>

namespace tofu {
namespace {

constexpr int kFloat32 = 0;

// A program of one operator, of whose outputs fetches make gradients.
class GradientBundlesTest : public testing::Test {
 protected:
  GradientBundlesTest() { program_.steps.emplace_back(); }

  void Fetch(int64_t elements, const std::string& role = "gradient:w", int source = 0,
             std::vector<SenderPattern> pattern = {}) {
    ProgramStep step;
    step.kind = ProgramStep::Kind::kFetch;
    step.shapes = {{elements}};
    step.dtypes = {kFloat32};
    step.source = {source, 0};
    step.pattern = std::move(pattern);
    ProgramHead head;
    head.role = role;
    head.made_by = static_cast<int>(program_.steps.size());
    program_.steps.push_back(std::move(step));
    program_.heads.push_back(std::move(head));
  }

  std::vector<int> Bundles() const { return GradientBundles(program_); }

  WorkerProgram program_;
};

TEST_F(GradientBundlesTest, SmallGradientsAreTogether) {
  for (int64_t elements : {1024, 8, 3000, 1024, 40}) {
    program_.steps.emplace_back();  // each of another operator
    Fetch(elements, "gradient:w", static_cast<int>(program_.steps.size()) - 1);
  }
  EXPECT_EQ(Bundles(), (std::vector<int>{0, 0, 0, 1, 1})) << "of at most 16 KiB";
}

TEST_F(GradientBundlesTest, LargeGradientsAreTogetherIfTheyHaveTheSameTerms) {
  Fetch(8192, "gradient:w", 0, {{1, 1}});
  Fetch(8192, "gradient:v", 0, {{1, 1}});
  Fetch(8192, "gradient:u", 0, {{2, 1}});
  Fetch(8192, "gradient:t", 1, {{2, 1}});
  EXPECT_EQ(Bundles(), (std::vector<int>{0, 0, 1, 2}));
}

TEST_F(GradientBundlesTest, OtherHeadsAndTilesThatNothingFetchesAreApart) {
  Fetch(8, "output");
  Fetch(8);
  ProgramHead tile;
  tile.role = "gradient:v";
  program_.heads.push_back(tile);
  EXPECT_EQ(Bundles(), (std::vector<int>{-1, 0, -1}));
}

TEST_F(GradientBundlesTest, TheHeadsOfAFetchAreTogether) {
  Fetch(8192);
  ProgramHead again = program_.heads[0];
  again.role = "gradient:v";
  program_.heads.push_back(again);
  EXPECT_EQ(Bundles(), (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace tofu
