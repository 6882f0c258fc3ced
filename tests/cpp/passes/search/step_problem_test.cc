#include "passes/search/step_problem.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "passes/search/make_plan.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

// Two variables of 2 and 3 values: 10 + unary + pair.
PairwiseProblem Small() {
  PairwiseProblem problem;
  problem.constant = 10;
  problem.AddVariable(2);
  problem.AddVariable(3);
  problem.unary[0] = std::vector<int64_t>{5, 0};
  problem.pairs.push_back({0, 1, std::vector<int64_t>{0, 9, 9, 9, 9, 2}});
  return problem;
}

std::string ErrorOf(nlohmann::json json) {
  try {
    ReadStepProblem(json.dump());
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kPlan);
    return error.what();
  }
  return "no error";
}

TEST(StepProblem, IsReadAsItWasWritten) {
  const std::string text = WriteStepProblem(Small());
  EXPECT_EQ(WriteStepProblem(ReadStepProblem(text)), text);
}

TEST(StepProblem, IsSolvedAsText) {
  const auto found = nlohmann::json::parse(SolveStepProblem(WriteStepProblem(Small())));
  EXPECT_EQ(found["cost"], 12);
  EXPECT_EQ(found["lower_bound"], 12);
  EXPECT_EQ(found["status"], "optimal");
  EXPECT_EQ(found["values"], (std::vector<int>{1, 2}));
}

TEST(StepProblem, WhatIsNoProblemIsRefused) {
  const auto json = nlohmann::json::parse(WriteStepProblem(Small()));
  EXPECT_EQ(ErrorOf(json), "no error");
  const auto error_with = [&](const std::string& path, const nlohmann::json& value) {
    nlohmann::json damaged = json;
    damaged[nlohmann::json::json_pointer(path)] = value;
    return ErrorOf(damaged);
  };
  for (const auto& [path, value] : std::vector<std::pair<std::string, nlohmann::json>>{
           {"/format", "another"},
           {"/version", 2},
           {"/constant", -1},
           {"/domains/0", 0},
           {"/unary", {{5, 0}}},
           {"/unary/0", {5}},
           {"/unary/0/0", -5},
           {"/pairs/0/0", 2},
           {"/pairs/0/1", 0},
           {"/pairs/0/2", {0, 9, 9, 9, 9}}}) {
    EXPECT_NE(error_with(path, value), "no error") << path;
  }
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

// Another first step makes another second problem; another second one does not.
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
