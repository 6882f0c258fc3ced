#include "graph/copied_workers.h"

#include <gtest/gtest.h>

#include "graph/strategy_table.h"

namespace tofu {
namespace {

Plan PlanOf(std::vector<int> parts, std::vector<int> tensor, std::vector<int> op) {
  Plan plan;
  plan.step_bytes.assign(parts.size(), 0);
  plan.parts = std::move(parts);
  plan.tensor_cuts = {std::move(tensor)};
  plan.op_cuts = {std::move(op)};
  return plan;
}

TEST(CopiedWorkers, FirstStepsThatDivideNothingAreDropped) {
  const Plan plan =
      WithoutCopiedWorkers({}, PlanOf({7, 3, 2}, {kReplicated, kReplicated, 0},
                                      {kReplicated, kReplicated, kReplicated}));
  EXPECT_EQ(plan.parts, std::vector<int>{2});
  EXPECT_EQ(plan.tensor_cuts[0], std::vector<int>{0});
  EXPECT_EQ(plan.op_cuts[0], std::vector<int>{kReplicated});
  EXPECT_EQ(plan.step_bytes.size(), 1u);
}

TEST(CopiedWorkers, StepsThatDivideATensorOrAnOperatorStay) {
  const auto parts_of = [](int tensor, int op) {
    return WithoutCopiedWorkers({}, PlanOf({2}, {tensor}, {op})).parts.size();
  };
  EXPECT_EQ(parts_of(0, kReplicated), 1u);
  EXPECT_EQ(parts_of(kReplicated, 0), 1u);
  EXPECT_EQ(parts_of(kReplicated, kReplicated), 0u);
}

TEST(CopiedWorkers, LaterStepsStaySoThatWorkersKeepTheirNumbers) {
  const Plan plan = WithoutCopiedWorkers({}, PlanOf({2, 3}, {0, kReplicated}, {0, 0}));
  EXPECT_EQ(plan.parts, (std::vector<int>{2, 3}));
}

TEST(CopiedWorkers, CopiesThatReadTheSameRandomNumbersAreKept) {
  StrategyTable table;
  table.rows.resize(1);
  table.rows[0].random = true;
  const Plan plan = PlanOf({2}, {kReplicated}, {kReplicated});
  EXPECT_EQ(WithoutCopiedWorkers(table, plan).parts.size(), 1u);
}

TEST(CopiedWorkers, PlansWithRoutesAreKept) {
  Plan plan = PlanOf({2}, {kReplicated}, {kReplicated});
  plan.routes.resize(1);
  EXPECT_EQ(WithoutCopiedWorkers({}, plan).parts.size(), 1u);
}

}  // namespace
}  // namespace tofu
