#include "solver/improve_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "solver/random_core.h"

namespace tofu {
namespace {

// The dearest choice that is allowed and fits; empty if there is none.
std::vector<int> Dearest(const ChoiceProblem& core) {
  std::vector<int> dearest;
  int64_t most = -1;
  ForEachChoice(core.domain, [&](const std::vector<int>& values) {
    const int64_t cost = core.Cost(values);
    if (cost >= kForbidden || cost <= most || !core.Fits(values)) return;
    most = cost;
    dearest = values;
  });
  return dearest;
}

// A few hundred values are one neighbourhood, so all of a small core is searched.
TEST(ImproveChoice, FindsTheLeastCostOfASmallCore) {
  int improved = 0;
  for (int seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ChoiceProblem core = RandomCore(seed);
    if (core.infeasible) continue;
    std::vector<int> values = Dearest(core);
    if (values.empty()) continue;
    const int64_t least = LeastCost(core);
    ImproveOptions options;
    options.max_nodes = 1000;
    for (; options.seed <= 40 && core.Cost(values) > least; ++options.seed) {
      const int64_t before = core.Cost(values);
      const auto better = ImproveChoice(core, values, before, options);
      if (!better) continue;
      ++improved;
      ASSERT_LT(core.Cost(*better), before);
      ASSERT_TRUE(core.Fits(*better));
      values = *better;
    }
    ASSERT_EQ(core.Cost(values), least);
    ASSERT_FALSE(ImproveChoice(core, values, least, options).has_value());
  }
  EXPECT_GT(improved, 50);
}

TEST(ImproveChoice, EqualSeedsFindEqualValues) {
  int seed = 1;
  while (Dearest(RandomCore(seed)).empty()) ++seed;
  const ChoiceProblem core = RandomCore(seed);
  const std::vector<int> values = Dearest(core);
  ImproveOptions options;
  EXPECT_EQ(ImproveChoice(core, values, core.Cost(values), options),
            ImproveChoice(core, values, core.Cost(values), options));
}

}  // namespace
}  // namespace tofu
