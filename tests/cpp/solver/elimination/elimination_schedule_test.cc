#include "solver/elimination/elimination_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "solver/random_problem.h"

namespace tofu {
namespace {

using Edges = std::vector<std::pair<int, int>>;

Edges EdgesOf(const ChoiceProblem& problem) {
  Edges edges;
  for (const ChoiceProblem::Pair& pair : problem.pairs)
    edges.emplace_back(pair.a, pair.b);
  return edges;
}

// The least cost of all choices, whether their memory fits or not.
int64_t LeastUnlimitedCost(const ChoiceProblem& problem) {
  int64_t least = kForbidden;
  ForEachChoice(problem.domain, [&](const std::vector<int>& values) {
    least = std::min(least, problem.Cost(values));
  });
  return least;
}

ChoiceProblem WithSmallCosts(int seed) {
  ChoiceProblem problem = RandomProblem(seed);
  const auto bounded = [](std::vector<int64_t> cells) {
    for (int64_t& cell : cells) cell = std::min<int64_t>(cell, 1000);
    return cells;
  };
  for (auto& cells : problem.unary) cells = bounded(cells);
  for (auto& pair : problem.pairs) pair.cost = bounded(pair.cost.vector());
  return problem;
}

TEST(EliminationSchedule, AnyOrderFindsTheLeastCost) {
  for (int seed = 1; seed <= 200; ++seed) {
    const ChoiceProblem problem = WithSmallCosts(seed);
    std::vector<int> order(problem.domain.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(seed)));
    TablePool pool;
    EliminationSchedule schedule(problem.domain, EdgesOf(problem), order, &pool);
    std::vector<int> values;
    int64_t least = -1;
    ASSERT_TRUE(schedule.Run(problem, 1e12, Deadline::max(), &pool, &values, &least));
    ASSERT_EQ(least, LeastUnlimitedCost(problem)) << "seed " << seed;
    ASSERT_EQ(problem.Cost(values), least) << "seed " << seed;
  }
}

// No state of an earlier run stays in the schedule or the pool.
TEST(EliminationSchedule, ServesProblemsThatDifferInTheirCosts) {
  ChoiceProblem problem;
  for (int v = 0; v < 3; ++v) problem.AddVariable(2);
  problem.pairs.push_back({0, 1, {0, 1, 1, 0}});
  problem.pairs.push_back({1, 2, {0, 1, 1, 0}});
  TablePool pool;
  EliminationSchedule schedule(problem.domain, EdgesOf(problem), {1, 0, 2}, &pool);
  std::vector<int> values;
  int64_t least = 0;
  const auto run = [&] {
    ASSERT_TRUE(schedule.Run(problem, 1e12, Deadline::max(), &pool, &values, &least));
  };
  run();
  EXPECT_EQ(values, (std::vector<int>{0, 0, 0})) << "ties go to the lowest value";
  problem.unary[2] = {5, 0};
  run();
  EXPECT_EQ(values, (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(least, 0);
  problem.unary[2].clear();
  problem.unary[0] = {3, 3};
  problem.constant = 10;
  run();
  EXPECT_EQ(values, (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(least, 13);
}

TEST(EliminationSchedule, TooMuchWorkSetsNothing) {
  ChoiceProblem problem;
  for (int v = 0; v < 2; ++v) problem.AddVariable(4);
  problem.pairs.push_back({0, 1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}});
  TablePool pool;
  EliminationSchedule schedule(problem.domain, EdgesOf(problem), {0, 1}, &pool);
  std::vector<int> values;
  int64_t least = 0;
  EXPECT_FALSE(schedule.Run(problem, 1, Deadline::max(), &pool, &values, &least));
  EXPECT_TRUE(values.empty());
  EXPECT_TRUE(schedule.Run(problem, 1e6, Deadline::max(), &pool, &values, &least));
}

TEST(EliminationSchedule, AfterTheDeadlineNothingIsSet) {
  ChoiceProblem problem;
  problem.AddVariable(2);
  TablePool pool;
  EliminationSchedule schedule(problem.domain, {}, {0}, &pool);
  std::vector<int> values = {7};
  int64_t least = 8;
  EXPECT_FALSE(schedule.Run(problem, 1e12, Deadline(), &pool, &values, &least));
  EXPECT_EQ(values, std::vector<int>{7});
  EXPECT_EQ(least, 8);
}

}  // namespace
}  // namespace tofu
