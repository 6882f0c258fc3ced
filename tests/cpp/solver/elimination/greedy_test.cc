#include "solver/elimination/greedy.h"

#include <gtest/gtest.h>

#include <vector>

namespace tofu {
namespace {

constexpr int kTensor = 0, kOp = 1, kOther = 2;

// Two tensors with an operator between them.
ChoiceProblem OneOperator() {
  ChoiceProblem problem;
  for (int v = 0; v < 3; ++v) problem.AddVariable(2);
  problem.pairs.push_back({kTensor, kOp, {0, 0, 0, 0}});
  problem.pairs.push_back({kOp, kOther, {0, 5, 9, 3}});
  return problem;
}

TEST(Greedy, ATensorTakesTheValueForWhichTheOperatorsAroundItCostLeast) {
  ChoiceProblem problem = OneOperator();
  problem.pairs[0].cost = {4, 9, 3, 1};  // of value 0: 4 + 0; of value 1: 3 + 0
  EXPECT_EQ(DecideGreedily(problem, {kTensor, kOther}), (std::vector<int>{1, 0, 0}));
  problem.unary[kTensor] = {0, 2};  // 4 against 5
  EXPECT_EQ(DecideGreedily(problem, {kTensor, kOther}), (std::vector<int>{0, 0, 0}));
}

// The operator takes value 0, because the other tensor could still take 0. That tensor
// then takes 1, with which 1 would have been better for the operator.
TEST(Greedy, WhatIsDecidedStays) {
  ChoiceProblem problem = OneOperator();
  problem.unary[kOther] = {100, 0};
  EXPECT_EQ(DecideGreedily(problem, {kTensor, kOther}), (std::vector<int>{0, 0, 1}));
}

TEST(Greedy, TensorsAreDecidedInTheGivenOrder) {
  ChoiceProblem problem = OneOperator();
  problem.unary[kOther] = {100, 0};
  EXPECT_EQ(DecideGreedily(problem, {kOther, kTensor}), (std::vector<int>{0, 1, 1}));
}

TEST(Greedy, OperatorsWhoseTensorsAreNotListedTakeTheirBestValue) {
  ChoiceProblem problem;
  problem.AddVariable(3);
  problem.unary[0] = {7, 2, 2};
  EXPECT_EQ(DecideGreedily(problem, {}), (std::vector<int>{1})) << "the lowest of two";
}

}  // namespace
}  // namespace tofu
