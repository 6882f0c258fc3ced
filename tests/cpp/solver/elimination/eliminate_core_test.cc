#include "solver/elimination/eliminate_core.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "solver/random_core.h"

namespace tofu {
namespace {

constexpr double kAnyWork = 1e12;

ChoiceProblem WithoutMemory(int seed) {
  ChoiceProblem core = RandomCore(seed);
  core.capacity.clear();
  for (auto& segments : core.segments) segments.clear();
  return core;
}

TEST(EliminateCore, FindsTheLeastCostBelowTheTop) {
  for (int seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ChoiceProblem core = WithoutMemory(seed);
    if (core.infeasible) continue;
    const int64_t least = LeastCost(core);
    if (least >= kForbidden) continue;
    const auto values = EliminateCore(core, least + 1, kAnyWork, Deadline::max());
    ASSERT_TRUE(values.has_value());
    ASSERT_EQ(core.Cost(*values), least);
  }
}

TEST(EliminateCore, LeavesWhatIsNotItsOwn) {
  ChoiceProblem core;
  core.domain = {2, 2};
  core.unary = {{0, 1}, {0, 2}};
  core.pairs.push_back({0, 1, {5, 0, 0, 5}});
  core.segments.resize(2);
  EXPECT_EQ(EliminateCore(core, 100, kAnyWork, Deadline::max()),
            (std::vector<int>{1, 0}));
  EXPECT_FALSE(EliminateCore(core, 100, 1, Deadline::max())) << "too much work";
  EXPECT_FALSE(EliminateCore(core, int64_t{1} << 61, kAnyWork, Deadline::max()))
      << "sums could overflow";
  core.capacity = {3};
  EXPECT_FALSE(EliminateCore(core, 100, kAnyWork, Deadline::max()))
      << "memory is limited";
}

TEST(EliminateCore, AnEmptyCoreHasOneChoice) {
  EXPECT_EQ(EliminateCore(ChoiceProblem(), 1, 0, Deadline::max()), std::vector<int>());
}

}  // namespace
}  // namespace tofu
