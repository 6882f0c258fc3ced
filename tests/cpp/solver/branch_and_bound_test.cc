#include "solver/branch_and_bound.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "solver/random_core.h"

namespace tofu {
namespace {

TEST(BranchAndBound, FindsTheLeastCostOfCoresThatWereNotReduced) {
  int branched = 0;
  for (int seed = 1; seed <= 600; ++seed) {
    const ChoiceProblem core = RandomCore(seed);
    if (core.infeasible) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    BranchOptions options;
    options.root_rounds = 1;  // too few to solve the root, so that it is divided
    options.neighbourhoods = seed % 2 == 0;
    const BranchResult result = BranchAndBound(core, options);
    const int64_t least = LeastCost(core);
    ASSERT_TRUE(result.done);
    ASSERT_EQ(result.cost, least);
    branched += result.nodes > 1;
    if (least >= kForbidden) continue;
    ASSERT_EQ(result.bound, least);
    ASSERT_EQ(core.Cost(result.values), least);
    ASSERT_TRUE(core.Fits(result.values));
  }
  EXPECT_GT(branched, 2);
}

TEST(BranchAndBound, ALimitOfWorkEndsItWithABound) {
  int stopped = 0;
  for (int seed = 1; seed <= 600; ++seed) {
    const ChoiceProblem core = RandomCore(seed);
    if (core.infeasible) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    BranchOptions options;
    options.root_rounds = 1;
    options.max_work = 1;
    const BranchResult result = BranchAndBound(core, options);
    ASSERT_LE(result.bound, LeastCost(core));
    ASSERT_LE(result.nodes, 1) << "the root takes more than that";
    if (result.done) continue;
    ++stopped;
    ASSERT_GE(result.work, options.max_work);
  }
  EXPECT_GT(stopped, 2);
}

TEST(BranchAndBound, OnlyWhatIsCheaperThanTheTopIsFound) {
  for (int seed = 1; seed <= 200; ++seed) {
    const ChoiceProblem core = RandomCore(seed);
    const int64_t least = LeastCost(core);
    if (least >= kForbidden) continue;
    BranchOptions options;
    options.top = least;
    BranchResult result = BranchAndBound(core, options);
    EXPECT_TRUE(result.done && result.values.empty()) << "seed " << seed;
    options.top = least + 1;
    result = BranchAndBound(core, options);
    EXPECT_TRUE(result.done && result.cost == least) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tofu
