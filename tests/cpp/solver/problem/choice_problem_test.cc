#include "solver/problem/choice_problem.h"

#include <gtest/gtest.h>

#include "solver/problem/deadline.h"

namespace tofu {
namespace {

TEST(ChoiceProblem, CostsAddUp) {
  ChoiceProblem problem;
  EXPECT_EQ(problem.AddVariable(2), 0);
  EXPECT_EQ(problem.AddVariable(3), 1);
  EXPECT_EQ(problem.Cost({1, 2}), 0) << "no unary costs are zeros";
  problem.constant = 100;
  problem.unary[1] = {1, 2, 3};
  problem.pairs.push_back({0, 1, {0, 0, 0, 10, 20, 30}});
  problem.pairs.push_back({1, 0, {0, 0, 0, 0, 0, 1000}});
  EXPECT_EQ(problem.Cost({1, 2}), 100 + 3 + 30 + 1000);
  EXPECT_EQ(problem.Cost({0, 1}), 100 + 2);
}

TEST(ChoiceProblem, CostsSaturateAndSumsDoNot) {
  ChoiceProblem problem;
  problem.AddVariable(2);
  problem.AddVariable(1);
  problem.unary = {{kForbidden, 5}, {kForbidden - 3}};
  EXPECT_EQ(problem.Cost({0, 0}), kForbidden);
  EXPECT_EQ(problem.Sum({0, 0}), 2 * kForbidden - 3);
  EXPECT_EQ(problem.Cost({1, 0}), kForbidden) << "a sum of that is not allowed either";
  EXPECT_EQ(problem.HighestCost(), kForbidden - 1);
}

TEST(ChoiceProblem, WithoutMomentsEverythingFits) {
  ChoiceProblem problem;
  problem.AddVariable(2);
  EXPECT_EQ(problem.Limit(), kUnlimited);
  problem.SetLimit(0);
  EXPECT_TRUE(problem.Fits({1}));
  EXPECT_EQ(problem.PeakBytes({1}), 0);
}

TEST(Deadline, TheLastMomentOfTheClockIsNever) {
  EXPECT_FALSE(IsPast(Deadline::max()));
  EXPECT_TRUE(IsPast(Deadline()));
  EXPECT_TRUE(IsPast(std::chrono::steady_clock::now()));
  EXPECT_FALSE(IsPast(std::chrono::steady_clock::now() + std::chrono::hours(1)));
}

}  // namespace
}  // namespace tofu
