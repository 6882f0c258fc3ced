#include "solver/least_limit.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "solver/problem/moments.h"
#include "solver/random_problem.h"

namespace tofu {
namespace {

TEST(LeastLimit, IsWhatTryingEveryChoiceFinds) {
  int without = 0;
  for (int seed = 1; seed <= 300; ++seed) {
    const ChoiceProblem problem = RandomProblem(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + Describe(problem));
    const LeastLimit limit = FindLeastLimit(problem, Deadline::max(), 1);
    const int64_t least = TryEveryChoice(problem).least_limit;
    ASSERT_EQ(limit.exists, least < kUnlimited);
    without += !limit.exists;
    if (!limit.exists) continue;
    ASSERT_EQ(limit.least, least);
    ASSERT_EQ(limit.bound, least);
    ASSERT_EQ(problem.PeakBytes(limit.values), least);
    const auto add = [](int64_t sum, const LeastLimit::Need& n) { return sum + n.bytes; };
    ASSERT_EQ(std::accumulate(limit.needs.begin(), limit.needs.end(), int64_t{0}, add),
              least);
  }
  EXPECT_GT(without, 10);
}

TEST(LeastLimit, NamesTheMomentAndWhatIsAliveThere) {
  ChoiceProblem problem;
  for (int v = 0; v < 4; ++v) problem.AddVariable(2);
  MemoryProfile profile(problem.domain);
  profile.Add(0, 0, 6, {4, 9});
  profile.Add(1, 3, 9, {7, 5});
  profile.Add(2, 6, 9, {1, 1});
  profile.Add(3, 0, 9, {0, 0});
  const std::vector<int64_t> moments = profile.Write(kUnlimited, &problem);
  const LeastLimit limit = FindLeastLimit(problem, Deadline::max(), 1);
  EXPECT_EQ(limit.least, 9);
  EXPECT_EQ(moments[limit.moment], 3);
  ASSERT_EQ(limit.needs.size(), 2u);
  EXPECT_EQ(limit.needs[0].variable, 1);
  EXPECT_EQ(limit.needs[0].bytes, 5);
  EXPECT_EQ(limit.needs[1].variable, 0);
}

}  // namespace
}  // namespace tofu
