#include "passes/search/make_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "passes/search/recursion/recursive_search.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

TEST(Pipeline, ReportsEveryPassWithAReadableDump) {
  ExampleGraph example = Mlp(24, 12, 2);
  PlanOptions options;
  options.workers = 6;
  std::vector<std::string> names;
  std::string text;
  MakePlan(example.graph(), example.table(), options,
           [&](const std::string& name, const std::string& dump) {
             names.push_back(name);
             text += dump;
           });
  EXPECT_EQ(names, (std::vector<std::string>{"group", "coalesce", "search step 1",
                                             "search step 2", "improve", "plan"}));
  EXPECT_NE(text.find("fc1 (dot) + fc1_dw + fc1_dx"), std::string::npos) << text;
  EXPECT_NE(text.find("(12, 12): fc0_weight fc0_dw"), std::string::npos) << text;
  EXPECT_NE(text.find("6 workers, "), std::string::npos);
}

TEST(Pipeline, StepsAreThePrimeFactorsLargestFirst) {
  EXPECT_EQ(PrimeFactors(1), std::vector<int>());
  EXPECT_EQ(PrimeFactors(8), (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(PrimeFactors(84), (std::vector<int>{7, 3, 2, 2}));
  EXPECT_EQ(PrimeFactors(13), std::vector<int>{13});
}

TEST(Pipeline, StepsHaveTwoPartsOrMore) {
  ExampleGraph example = Residual(64, 64, 2);
  PlanOptions options;
  options.workers = 4;
  for (const std::vector<int>& parts :
       std::vector<std::vector<int>>{{1, 4}, {4, 1}, {-2, -2}, {2, 3}, {2, 2, 1 << 20}}) {
    options.parts = parts;
    EXPECT_THROW(MakePlan(example.graph(), example.table(), options), UserError);
  }
  options.parts = {4};
  EXPECT_EQ(MakePlan(example.graph(), example.table(), options).parts, options.parts);
}

TEST(Pipeline, TheTimeLimitEndsTheImprovementNotThePlan) {
  ExampleGraph example = Residual(64, 64, 200);
  PlanOptions options;
  options.workers = 8;
  options.time_limit_s = 1e-6;
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  options.mode = "recursion";
  options.time_limit_s = 60;
  EXPECT_EQ(plan.parts.size(), 3u);
  EXPECT_LE(plan.lower_bound_bytes, plan.total_bytes());
  EXPECT_GE(plan.total_bytes(),
            MakePlan(example.graph(), example.table(), options).lower_bound_bytes);
}

TEST(Pipeline, ASmallTableLimitKeepsTheBoundBelowThePlan) {
  ExampleGraph example = Mlp(64, 32, 4);
  PlanOptions options;
  options.workers = 4;
  options.mode = "recursion";
  const Plan exact = MakePlan(example.graph(), example.table(), options);
  options.max_table = 2;
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  EXPECT_LE(plan.lower_bound_bytes, exact.lower_bound_bytes);
  EXPECT_GE(plan.total_bytes(), plan.lower_bound_bytes);
}

}  // namespace
}  // namespace tofu
