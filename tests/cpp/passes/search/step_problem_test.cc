#include "passes/search/step_problem.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "passes/search/make_plan.h"
#include "solver/problem/read_problem.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

// Two variables of 2 and 3 values: 10 + unary + pair.
ChoiceProblem Small() {
  ChoiceProblem problem;
  problem.constant = 10;
  problem.AddVariable(2);
  problem.AddVariable(3);
  problem.unary[0] = std::vector<int64_t>{5, 0};
  problem.pairs.push_back({0, 1, std::vector<int64_t>{0, 9, 9, 9, 9, 2}});
  return problem;
}

TEST(StepProblem, IsReadAsItWasWritten) {
  const std::string text = WriteStepProblem(Small());
  EXPECT_EQ(WriteStepProblem(ReadProblem(text).problem), text);
}

TEST(StepProblem, IsOfAStepThatThePlanHas) {
  ExampleGraph example = Mlp(8, 8, 1);
  PlanOptions options;
  options.workers = 4;
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  for (int step : {0, 1}) {
    EXPECT_NO_THROW(StepProblem(example.graph(), example.table(), plan, step));
  }
  for (int step : {-1, 2}) {
    EXPECT_THROW(StepProblem(example.graph(), example.table(), plan, step), UserError);
  }
}

// The second step's problem depends on the first step, but not on the second.
TEST(StepProblem, KeepsTheStepsBeforeItAndForgetsItsOwn) {
  ExampleGraph example = Mlp(8, 8, 1);
  PlanOptions options;
  options.workers = 4;
  Plan plan = MakePlan(example.graph(), example.table(), options);
  const auto problem_with = [&](size_t step, int cut) {
    for (size_t e = 0; e < plan.tensor_cuts.size(); ++e) {
      if (example.graph().shapes[e].size() == 2) plan.tensor_cuts[e][step] = cut;
    }
    return WriteStepProblem(StepProblem(example.graph(), example.table(), plan, 1));
  };
  const std::string rows = problem_with(0, 0);
  const std::string columns = problem_with(0, 1);
  EXPECT_NE(rows, columns);
  EXPECT_EQ(problem_with(1, 0), columns);
  EXPECT_EQ(problem_with(1, 1), columns);
}

}  // namespace
}  // namespace tofu
