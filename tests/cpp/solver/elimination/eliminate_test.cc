#include "solver/elimination/eliminate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

namespace tofu {
namespace {

// `variables` variables of domain 1 to 4 and `pairs` random tables.
ChoiceProblem RandomTables(unsigned seed, int variables, int pairs) {
  std::mt19937 random(seed);
  ChoiceProblem problem;
  problem.constant = static_cast<int64_t>(random() % 10);
  for (int v = 0; v < variables; ++v) {
    problem.AddVariable(1 + static_cast<int>(random() % 4));
    for (int x = 0; x < problem.domain[v] && v % 2 == 0; ++x) {
      problem.unary[v].push_back(static_cast<int64_t>(random() % 100));
    }
  }
  for (int i = 0; i < pairs; ++i) {
    const int a = static_cast<int>(random() % static_cast<unsigned>(variables));
    const int b = static_cast<int>(random() % static_cast<unsigned>(variables));
    if (a == b) continue;
    std::vector<int64_t> cost;
    for (int c = 0; c < problem.domain[a] * problem.domain[b]; ++c) {
      cost.push_back(static_cast<int64_t>(random() % 100));
    }
    problem.pairs.push_back({a, b, std::move(cost)});
  }
  return problem;
}

int64_t BruteForce(const ChoiceProblem& problem) {
  std::vector<int> values(problem.domain.size(), 0);
  int64_t best = problem.Cost(values);
  while (true) {
    size_t v = 0;
    while (v < values.size() && ++values[v] == problem.domain[v]) values[v++] = 0;
    if (v == values.size()) return best;
    best = std::min(best, problem.Cost(values));
  }
}

TEST(Eliminate, EqualsBruteForceOnRandomProblems) {
  for (unsigned seed = 1; seed <= 500; ++seed) {
    const int variables = 1 + static_cast<int>(seed % 7);
    const ChoiceProblem problem =
        RandomTables(seed, variables, static_cast<int>(seed % 15));
    const EliminateResult result = Eliminate(problem, {});
    ASSERT_EQ(result.status, EliminateStatus::kOptimal) << "seed " << seed;
    ASSERT_EQ(result.cost, BruteForce(problem)) << "seed " << seed;
    ASSERT_EQ(result.lower_bound, result.cost) << "seed " << seed;
    ASSERT_EQ(problem.Cost(result.values), result.cost) << "seed " << seed;
  }
}

TEST(Eliminate, BelowTheTableLimitItBoundsTheOptimumFromBothSides) {
  int64_t optimum = 0;
  int64_t num_found = 0;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    const ChoiceProblem problem = RandomTables(seed, 8, 24);
    EliminateOptions options;
    options.max_table = 8;
    const EliminateResult result = Eliminate(problem, options);
    const int64_t expected = BruteForce(problem);
    ASSERT_LE(result.lower_bound, expected) << "seed " << seed;
    ASSERT_GE(result.cost, expected) << "seed " << seed;
    ASSERT_EQ(problem.Cost(result.values), result.cost) << "seed " << seed;
    ASSERT_EQ(result.status == EliminateStatus::kOptimal,
              result.cost == result.lower_bound);
    optimum += expected;
    num_found += result.cost;
  }
  EXPECT_LE(num_found, optimum + optimum / 50) << "on average within 2% of the optimum";
}

TEST(Eliminate, AWideProblemEndsWithABoundWithinItsTime) {
  const ChoiceProblem problem = RandomTables(7, 120, 4000);
  EliminateOptions options;
  options.max_table = 1 << 12;
  options.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  const EliminateResult result = Eliminate(problem, options);
  EXPECT_EQ(result.status, EliminateStatus::kFeasible);
  EXPECT_LT(result.lower_bound, result.cost);
}

TEST(Eliminate, WithoutTimeTheBoundIsTheSumOfTheLeastCells) {
  ChoiceProblem problem;
  for (int v = 0; v < 3; ++v) problem.AddVariable(2);
  problem.constant = 100;
  problem.unary[0] = {3, 4};
  problem.pairs.push_back({0, 1, {5, 6, 7, 8}});
  problem.pairs.push_back({1, 2, {20, 30, 40, 10}});
  EliminateOptions options;
  options.deadline = Deadline();
  const EliminateResult result = Eliminate(problem, options);
  EXPECT_EQ(result.lower_bound, 100 + 3 + 5 + 10);
  EXPECT_EQ(result.cost, problem.Cost(result.values));
}

TEST(Eliminate, EqualProblemsGiveEqualValues) {
  EliminateOptions options;
  options.max_table = 16;
  const ChoiceProblem problem = RandomTables(3, 20, 90);
  EXPECT_EQ(Eliminate(problem, options).values, Eliminate(problem, options).values);
}

// A chain of equal blocks: after the first few, only look-ups remain.
TEST(Eliminate, RepeatedStructureIsMinimisedOnce) {
  const SharedCells pair = {7, 1, 3, 0, 5, 2, 6, 4, 1};
  size_t tables = 0;
  for (int blocks : {100, 10000}) {
    ChoiceProblem problem;
    for (int v = 0; v < blocks; ++v) {
      problem.AddVariable(3);
      if (v > 0) problem.pairs.push_back({v - 1, v, pair});
    }
    EliminationCache cache;
    const EliminateResult result = Eliminate(problem, {}, &cache);
    EXPECT_EQ(result.status, EliminateStatus::kOptimal);
    EXPECT_LT(cache.pool().num_tables(), 20U);
    EXPECT_TRUE(tables == 0 || cache.pool().num_tables() == tables);
    tables = cache.pool().num_tables();
  }
}

// The cached structure of a problem works for other costs.
TEST(Eliminate, WithACacheItFindsWhatItFindsWithout) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    ChoiceProblem problem = RandomTables(seed, 12, 20);
    std::mt19937 random(seed);
    EliminationCache cache;
    for (int round = 0; round < 4; ++round) {
      const EliminateResult with = Eliminate(problem, {}, &cache);
      const EliminateResult without = Eliminate(problem, {});
      ASSERT_EQ(with.values, without.values) << "seed " << seed << ", round " << round;
      ASSERT_EQ(with.lower_bound, without.cost) << "seed " << seed << ", round " << round;
      // Some variables get new costs of their own, and some pairs get other costs.
      for (size_t v = random() % 3; v < problem.unary.size(); v += 3) {
        std::vector<int64_t> costs(static_cast<size_t>(problem.domain[v]), 5);
        problem.unary[v] = problem.unary[v].empty() ? costs : std::vector<int64_t>();
      }
      for (ChoiceProblem::Pair& pair : problem.pairs) {
        std::vector<int64_t> cells = pair.cost.vector();
        cells[random() % cells.size()] += 50;
        pair.cost = SharedCells(std::move(cells));
      }
    }
  }
}

TEST(Eliminate, WithoutTimeItDecidesOneVariableAfterTheOther) {
  const ChoiceProblem problem = RandomTables(7, 120, 4000);
  EliminateOptions options;
  options.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  const EliminateResult result = Eliminate(problem, options);
  EXPECT_EQ(problem.Cost(result.values), result.cost);
  EXPECT_EQ(result.status, EliminateStatus::kFeasible);
  EXPECT_LE(result.lower_bound, Eliminate(problem, {int64_t{1} << 10}).lower_bound);
}

TEST(Eliminate, RefusesMoreWorkThanAllowed) {
  EliminateOptions options;
  options.max_work = 3;
  const EliminateResult result = Eliminate(RandomTables(5, 6, 12), options);
  EXPECT_EQ(result.status, EliminateStatus::kTooBig);
}

TEST(Eliminate, TiesGoToTheLowestValue) {
  ChoiceProblem problem;
  problem.AddVariable(3);
  problem.AddVariable(2);
  problem.pairs.push_back({1, 0, std::vector<int64_t>(6, 5)});
  EXPECT_EQ(Eliminate(problem, {}).values, (std::vector<int>{0, 0}));
}

TEST(Eliminate, AProblemWithoutVariablesIsItsConstant) {
  ChoiceProblem problem;
  problem.constant = 42;
  const EliminateResult result = Eliminate(problem, {});
  EXPECT_EQ(result.status, EliminateStatus::kOptimal);
  EXPECT_EQ(result.cost, 42);
}

}  // namespace
}  // namespace tofu
