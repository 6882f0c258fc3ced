#include "solver/moments.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "solver/random_problem.h"

namespace tofu {
namespace {

TEST(Moments, TheSameChoicesFit) {
  for (int seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const auto draw = [&random](int n) { return static_cast<int>(random() % n); };
    const std::vector<int> domain = {3, 2, 3, 2};
    const int64_t limit = 3 + draw(12);
    MemoryProfile profile(domain, limit);
    LimitedProblem problem;  // counts the same in another way
    for (int size : domain) problem.costs.AddVariable(size);
    problem.costs.AddVariable(1);
    for (int use = 0; use < 8; ++use) {
      const int v = draw(5);
      const int begin = draw(10);
      const int end = begin + 1 + draw(6);
      std::vector<int64_t> bytes;
      for (int x = 0; x < problem.costs.domain[v]; ++x) bytes.push_back(draw(5));
      profile.Add(v == 4 ? -1 : v, begin, end, bytes);
      problem.uses.push_back({v, begin, end, bytes});
    }
    CoreProblem core;
    core.domain = domain;
    core.unary.resize(4);
    core.segments.resize(4);
    profile.Write(&core);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + Describe(problem));
    ForEachChoice(problem.costs.domain, [&](const std::vector<int>& values) {
      const bool fits = problem.PeakBytes(values) <= limit;
      ASSERT_EQ(!core.infeasible &&
                    core.Fits(std::vector<int>(values.begin(), values.begin() + 4)),
                fits);
    });
  }
}

TEST(Moments, OnlyThePeakOfAHillIsKept) {
  MemoryProfile profile({2}, 6);
  for (int t = 0; t < 5; ++t) profile.Add(0, t, 10 - t, {0, 2});
  CoreProblem core;
  core.domain = {2};
  core.unary = {{0, 0}};
  core.segments.resize(1);
  profile.Write(&core);
  ASSERT_EQ(core.capacity, std::vector<int64_t>{6});
  EXPECT_EQ(core.segments[0][0].bytes, (std::vector<int64_t>{0, 10}));
}

TEST(Moments, AMomentThatCannotExceedIsNone) {
  MemoryProfile profile({2}, 10);
  profile.Add(0, 0, 5, {3, 7});
  profile.Add(-1, 2, 3, {3});
  CoreProblem core;
  core.domain = {2};
  core.unary = {{0, 0}};
  core.segments.resize(1);
  profile.Write(&core);
  EXPECT_TRUE(core.capacity.empty());
  EXPECT_TRUE(core.segments[0].empty());
  EXPECT_FALSE(core.infeasible);
}

TEST(Moments, WhatIsUsedWhateverIsChosenMustFit) {
  MemoryProfile profile({2}, 4);
  profile.Add(0, 0, 5, {3, 7});
  profile.Add(-1, 2, 3, {2});
  CoreProblem core;
  core.domain = {2};
  core.unary = {{0, 0}};
  core.segments.resize(1);
  profile.Write(&core);
  EXPECT_TRUE(core.infeasible);
}

}  // namespace
}  // namespace tofu
