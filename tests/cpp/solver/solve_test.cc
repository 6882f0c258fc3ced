#include "solver/solve.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "solver/problem/moments.h"
#include "solver/random_problem.h"

namespace tofu {
namespace {

constexpr int kNumProblems = 2000;

TEST(Solve, FindsWhatTryingEveryChoiceFinds) {
  int infeasible = 0;
  for (int seed = 1; seed <= kNumProblems; ++seed) {
    const ChoiceProblem problem = RandomProblem(seed);
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
    ASSERT_LE(problem.PeakBytes(result.values), problem.Limit());
  }
  EXPECT_GT(infeasible, kNumProblems / 10);
  EXPECT_LT(infeasible, kNumProblems / 2);
}

// A map of four countries, each next to all others, in `colours` colours.
ChoiceProblem FourNeighbours(int colours) {
  ChoiceProblem problem;
  for (int v = 0; v < 4; ++v) problem.AddVariable(colours);
  for (int a = 0; a < 4; ++a) {
    for (int b = a + 1; b < 4; ++b) {
      std::vector<int64_t> cells;
      for (int i = 0; i < colours * colours; ++i) {
        cells.push_back(i % colours == i / colours ? kForbidden : 1);
      }
      problem.pairs.push_back({a, b, std::move(cells)});
    }
  }
  return problem;
}

TEST(Solve, WhatOnlyASearchRefutesIsInfeasible) {
  ChoiceProblem problem = FourNeighbours(3);
  EXPECT_EQ(Solve(problem, {}).status, SolveStatus::kInfeasible);
  // The same with a memory limit, which prevents elimination.
  MemoryProfile profile(problem.domain);
  for (int v = 0; v < 4; ++v) profile.Add(v, 0, 1, {2, 1, 0});
  profile.Write(7, &problem);
  EXPECT_EQ(Solve(problem, {}).status, SolveStatus::kInfeasible);
}

TEST(Solve, OnlyWhatIsCheaperThanTheTopCounts) {
  const ChoiceProblem problem = FourNeighbours(4);
  SolveOptions options;
  options.top = 7;
  EXPECT_EQ(Solve(problem, options).cost, 6);
  options.top = 6;
  EXPECT_EQ(Solve(problem, options).status, SolveStatus::kInfeasible);
}

TEST(Solve, WhatReductionsSolveMustBeCheaperThanTheTopAsWell) {
  ChoiceProblem problem;
  problem.AddVariable(2);
  problem.unary[0] = {7, 5};
  SolveOptions options;
  options.top = 6;
  EXPECT_EQ(Solve(problem, options).cost, 5);
  options.top = 5;
  const SolveResult result = Solve(problem, options);
  EXPECT_EQ(result.status, SolveStatus::kInfeasible);
  EXPECT_EQ(result.bound, 5);
}

TEST(Solve, EqualPartsAreSolvedOnceAndAllCounted) {
  ChoiceProblem problem;
  for (int part = 0; part < 5; ++part) {
    const ChoiceProblem one = FourNeighbours(4);
    const int first = static_cast<int>(problem.domain.size());
    for (int size : one.domain) problem.AddVariable(size);
    for (const ChoiceProblem::Pair& pair : one.pairs) {
      problem.pairs.push_back({first + pair.a, first + pair.b, pair.cost});
    }
  }
  MemoryProfile profile(problem.domain);
  for (int v = 0; v < problem.num_variables(); ++v) {
    profile.Add(v, 10 * (v / 4), 10 * (v / 4) + 1, {6, 1, 0, 3});
  }
  profile.Write(9, &problem);  // all four colours need 10
  EXPECT_EQ(Solve(problem, {}).status, SolveStatus::kInfeasible);
  problem.SetLimit(10);
  const SolveResult result = Solve(problem, {});
  EXPECT_EQ(result.cost, 5 * 6);
  EXPECT_EQ(result.status, SolveStatus::kOptimal);
  EXPECT_LE(result.nodes, 1);  // the other four are copies
}

// Countries of two maps, which a search has to divide: memory prevents elimination.
ChoiceProblem MapsWithin(const std::vector<int>& colours) {
  ChoiceProblem problem;
  for (int part = 0; part < static_cast<int>(colours.size()); ++part) {
    const ChoiceProblem one = FourNeighbours(colours[part]);
    const int first = problem.num_variables();
    for (int size : one.domain) problem.AddVariable(size);
    for (const ChoiceProblem::Pair& pair : one.pairs) {
      problem.pairs.push_back({first + pair.a, first + pair.b, pair.cost});
    }
  }
  MemoryProfile profile(problem.domain);
  for (int v = 0; v < problem.num_variables(); ++v) {
    std::vector<int64_t> bytes = {6, 1, 0, 3, 5, 5};
    bytes.resize(problem.domain[v]);
    profile.Add(v, v / 4, v / 4 + 1, bytes);
  }
  profile.Write(10, &problem);
  return problem;
}

TEST(Solve, NodesOfAllPartsAreCounted) {
  const int64_t four = Solve(MapsWithin({4}), {}).nodes;
  const int64_t six = Solve(MapsWithin({6}), {}).nodes;
  EXPECT_GE(four, 1);
  EXPECT_GE(six, 1);
  const SolveResult both = Solve(MapsWithin({4, 6}), {});
  EXPECT_EQ(both.status, SolveStatus::kOptimal);
  EXPECT_EQ(both.nodes, four + six);
}

TEST(Solve, AfterAStopNoPartIsBegun) {
  for (const bool is_limited : {false, true}) {
    ChoiceProblem problem = MapsWithin({4, 5, 6});
    if (!is_limited) problem.SetLimit(kUnlimited);
    SolveOptions options;
    options.on_progress = [](const SolveProgress&) { return false; };
    const SolveResult result = Solve(problem, options);
    EXPECT_EQ(result.status, SolveStatus::kUnknown);
    EXPECT_TRUE(result.values.empty()) << "other parts were solved";
  }
}

// Two parts of random costs between all their variables, which bounds alone do not solve.
ChoiceProblem TwoHardParts() {
  ChoiceProblem problem;
  std::mt19937 random(7);
  for (int first : {0, 9}) {
    for (int v = 0; v < 9; ++v) problem.AddVariable(3);
    for (int a = first; a < first + 9; ++a) {
      for (int b = a + 1; b < first + 9; ++b) {
        std::vector<int64_t> cells(9);
        for (int64_t& cell : cells) cell = static_cast<int64_t>(random() % 100);
        problem.pairs.push_back({a, b, std::move(cells)});
      }
    }
  }
  return problem;
}

TEST(Solve, APartThatTakesMoreThanItsShareOfTheTimeStaysOpen) {
  const ChoiceProblem problem = TwoHardParts();
  SolveOptions options;
  options.elimination_work = 0;
  options.late_elimination_work = 0;
  ASSERT_EQ(Solve(problem, options).status, SolveStatus::kOptimal);
  const Deadline begin = std::chrono::steady_clock::now();
  options.deadline = begin + std::chrono::milliseconds(400);
  options.on_progress = [&](const SolveProgress&) {
    std::this_thread::sleep_until(begin + std::chrono::milliseconds(300));
    return true;
  };
  EXPECT_NE(Solve(problem, options).status, SolveStatus::kOptimal);
}

TEST(Solve, WithoutTimeWhatIsFoundStillFits) {
  int solved = 0;
  for (int seed = 1; seed <= 300; ++seed) {
    const ChoiceProblem problem = RandomProblem(seed);
    SolveOptions options;
    options.deadline = Deadline::min();
    const SolveResult result = Solve(problem, options);
    if (result.values.empty()) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int64_t best = TryEveryChoice(problem).cost;
    ASSERT_LE(problem.PeakBytes(result.values), problem.Limit());
    ASSERT_EQ(problem.Cost(result.values), result.cost);
    ASSERT_LE(best, result.cost);
    ASSERT_GE(best, result.bound);
    ++solved;
  }
  EXPECT_GT(solved, 100);
}

}  // namespace
}  // namespace tofu
