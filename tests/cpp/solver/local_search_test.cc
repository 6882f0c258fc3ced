#include "solver/local_search.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "solver/random_core.h"

namespace tofu {
namespace {

TEST(RepairAndImprove, FitsAndNoSingleChangeIsCheaper) {
  int num_found = 0, feasible = 0;
  for (int seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ChoiceProblem core = RandomCore(seed);
    if (core.infeasible) continue;
    feasible += LeastCost(core) < kForbidden;
    const auto values =
        RepairAndImprove(core, std::vector<int>(core.domain.size(), 0), Deadline::max());
    if (!values) continue;
    ++num_found;
    const int64_t cost = core.Cost(*values);
    ASSERT_LT(cost, kForbidden);
    ASSERT_TRUE(core.Fits(*values));
    for (int v = 0; v < core.num_variables(); ++v) {
      for (int x = 0; x < core.domain[v]; ++x) {
        std::vector<int> changed = *values;
        changed[v] = x;
        ASSERT_TRUE(core.Cost(changed) >= cost || !core.Fits(changed));
      }
    }
  }
  EXPECT_GT(num_found, feasible / 2);
}

TEST(RepairAndImprove, TakesTheChangeThatReducesTheExcessMostForItsCost) {
  ChoiceProblem core;
  core.domain = {2, 2};
  core.unary = {{0, 100}, {0, 1}};
  core.capacity = {10};
  core.segments = {{{0, 1, {8, 0}}}, {{0, 1, {8, 0}}}};
  const auto values = RepairAndImprove(core, {0, 0}, Deadline::max());
  ASSERT_TRUE(values.has_value());
  EXPECT_EQ(*values, (std::vector<int>{0, 1}));
}

TEST(RepairAndImprove, FindsNothingWhereNothingFits) {
  ChoiceProblem core;
  core.domain = {1, 1};
  core.unary = {{0}, {0}};
  core.capacity = {-1};
  core.segments.resize(2);
  EXPECT_FALSE(RepairAndImprove(core, {0, 0}, Deadline::max()).has_value());
}

}  // namespace
}  // namespace tofu
