#include "solver/solve.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "solver/random_problem.h"

namespace tofu {
namespace {

constexpr int kNumProblems = 2000;

TEST(Solve, FindsWhatTryingEveryChoiceFinds) {
  int infeasible = 0;
  for (int seed = 1; seed <= kNumProblems; ++seed) {
    const LimitedProblem problem = RandomLimitedProblem(seed);
    const int64_t best = TryEveryChoice(problem).cost;
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + Describe(problem));
    const SolveResult result = Solve(problem, {});
    if (best >= kForbidden) {
      ASSERT_EQ(result.status, SolveStatus::kInfeasible);
      ++infeasible;
      continue;
    }
    ASSERT_EQ(result.status, SolveStatus::kOptimal);
    ASSERT_EQ(result.cost, best);
    ASSERT_EQ(result.bound, best);
    ASSERT_EQ(problem.Cost(result.values), best);
    ASSERT_LE(problem.PeakBytes(result.values), problem.limit);
  }
  EXPECT_GT(infeasible, kNumProblems / 10);
  EXPECT_LT(infeasible, kNumProblems / 2);
}

}  // namespace
}  // namespace tofu
