#include "solver/problem/sum_pairs.h"

#include <gtest/gtest.h>

#include <utility>

#include "solver/random_problem.h"

namespace tofu {
namespace {

TEST(SumPairs, CostsStayAndEachTwoVariablesHaveOneTable) {
  int fewer = 0;
  for (int seed = 1; seed <= 200; ++seed) {
    const ChoiceProblem problem = RandomProblem(seed);
    ChoiceProblem core = problem;
    core.pairs.clear();
    PairSums sums(&core);
    for (const auto& pair : problem.pairs) sums.Add(pair.a, pair.b, pair.cost);
    for (size_t i = 0; i < core.pairs.size(); ++i) {
      ASSERT_LT(core.pairs[i].a, core.pairs[i].b);
      for (size_t j = 0; j < i; ++j) {
        ASSERT_NE(std::pair(core.pairs[i].a, core.pairs[i].b),
                  std::pair(core.pairs[j].a, core.pairs[j].b));
      }
    }
    ForEachChoice(problem.domain, [&](const std::vector<int>& values) {
      ASSERT_EQ(core.Cost(values), problem.Cost(values)) << "seed " << seed;
    });
    fewer += core.pairs.size() < problem.pairs.size();
  }
  EXPECT_GT(fewer, 10);
}

TEST(SumPairs, EqualTablesStayOneAndCellsAreAtMostForbidden) {
  ChoiceProblem core;
  for (int v = 0; v < 4; ++v) core.AddVariable(2);
  const SharedCells cost = {1, 2, 3, 2 * kForbidden};
  PairSums sums(&core);
  sums.Add(1, 0, cost);
  sums.Add(3, 2, cost);
  sums.Add(0, 2, cost);
  EXPECT_EQ(core.pairs[0].cost, (SharedCells{1, 3, 2, kForbidden}));
  EXPECT_EQ(core.pairs[0].cost.pointer(), core.pairs[1].cost.pointer());
  EXPECT_EQ(core.pairs[2].cost, (SharedCells{1, 2, 3, kForbidden}));
}

}  // namespace
}  // namespace tofu
