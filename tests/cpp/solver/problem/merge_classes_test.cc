#include "solver/problem/merge_classes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "solver/random_core.h"

namespace tofu {
namespace {

constexpr int64_t kNo = kForbidden;

TEST(MergeClasses, KeepsEveryChoiceThatIsAllowed) {
  for (int seed = 1; seed <= 500; ++seed) {
    const ChoiceProblem problem = RandomProblem(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + Describe(problem));
    const MergedClasses merged = MergeClasses(problem);
    ASSERT_EQ(LeastCost(merged.core), TryEveryChoice(problem).cost);
    if (merged.core.infeasible) continue;
    ForEachChoice(merged.core.domain, [&](const std::vector<int>& values) {
      const int64_t cost = merged.core.Cost(values);
      if (cost >= kForbidden) return;
      const std::vector<int> lifted = merged.lift(values);
      ASSERT_EQ(problem.Cost(lifted), cost);
      ASSERT_EQ(problem.PeakBytes(lifted) <= problem.Limit(), merged.core.Fits(values));
    });
  }
}

TEST(MergeClasses, VariablesInAChainOfTiesAreOne) {
  ChoiceProblem problem;
  for (int v = 0; v < 4; ++v) problem.AddVariable(2);
  for (int v = 0; v < 3; ++v) {
    problem.pairs.push_back({v, v + 1, {kNo, 1, 2, kNo}});  // the other value
  }
  const MergedClasses merged = MergeClasses(problem);
  ASSERT_EQ(merged.core.num_variables(), 1);
  EXPECT_TRUE(merged.core.pairs.empty());
  EXPECT_EQ(merged.core.unary[0], (std::vector<int64_t>{1 + 2 + 1, 2 + 1 + 2}));
  EXPECT_EQ(merged.lift({1}), (std::vector<int>{1, 0, 1, 0}));
}

TEST(MergeClasses, ARingOfTiesThatDoesNotCloseAllowsNothing) {
  ChoiceProblem problem;
  for (int v = 0; v < 3; ++v) problem.AddVariable(2);
  for (int v = 0; v < 3; ++v) {
    problem.pairs.push_back({v, (v + 1) % 3, {kNo, 0, 0, kNo}});
  }
  EXPECT_EQ(LeastCost(MergeClasses(problem).core), kForbidden);
}

TEST(MergeClasses, CostsThatAddUpToForbiddenAreForbidden) {
  ChoiceProblem problem;
  problem.AddVariable(2);
  problem.AddVariable(2);
  problem.unary[0] = {kNo - 1, kNo - 1};
  problem.unary[1] = {kNo - 1, 0};
  problem.pairs.push_back({0, 1, {kNo, 0, 0, kNo}});
  const MergedClasses merged = MergeClasses(problem);
  EXPECT_EQ(merged.core.unary[0], (std::vector<int64_t>{kNo - 1, kNo}));
}

}  // namespace
}  // namespace tofu
