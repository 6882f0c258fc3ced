#include "solver/problem/moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "solver/random_problem.h"

namespace tofu {
namespace {

// The memory that a variable uses at the moments begin .. end - 1. Variable 4 stands for
// memory that every choice uses.
struct Use {
  int variable;
  int64_t begin;
  int64_t end;
  std::vector<int64_t> bytes;
};

int64_t PeakOf(const std::vector<Use>& uses, const std::vector<int>& values) {
  int64_t peak = 0;
  for (int64_t moment = 0; moment < 20; ++moment) {
    int64_t sum = 0;
    for (const Use& use : uses) {
      if (use.begin > moment || use.end <= moment) continue;
      sum += use.bytes[use.variable == 4 ? 0 : values[use.variable]];
    }
    peak = std::max(peak, sum);
  }
  return peak;
}

TEST(Moments, TheSameChoicesFit) {
  for (int seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const auto draw = [&random](int n) { return static_cast<int>(random() % n); };
    const std::vector<int> domain = {3, 2, 3, 2};
    const int64_t limit = 3 + draw(12);
    MemoryProfile profile(domain);
    std::vector<Use> uses;
    for (int use = 0; use < 8; ++use) {
      const int v = draw(5);
      const int begin = draw(10);
      const int end = begin + 1 + draw(6);
      std::vector<int64_t> bytes;
      for (int x = 0; x < (v == 4 ? 1 : domain[v]); ++x) bytes.push_back(draw(5));
      profile.Add(v == 4 ? -1 : v, begin, end, bytes);
      uses.push_back({v, begin, end, bytes});
    }
    ChoiceProblem problem;
    for (int size : domain) problem.AddVariable(size);
    profile.Write(limit, &problem);
    ChoiceProblem core = problem;
    CompressMoments(&core);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + Describe(problem));
    ForEachChoice(domain, [&](const std::vector<int>& values) {
      const bool fits = PeakOf(uses, values) <= limit;
      ASSERT_EQ(problem.Fits(values), fits);
      ASSERT_EQ(!core.infeasible && core.Fits(values), fits);
    });
  }
}

TEST(Moments, OnlyThePeakOfAHillIsKept) {
  MemoryProfile profile({2});
  for (int t = 0; t < 5; ++t) profile.Add(0, t, 10 - t, {0, 2});
  ChoiceProblem core;
  core.domain = {2};
  core.unary = {{0, 0}};
  core.segments.resize(1);
  profile.Write(6, &core);
  CompressMoments(&core);
  ASSERT_EQ(core.capacity, std::vector<int64_t>{6});
  EXPECT_EQ(core.segments[0][0].bytes, (std::vector<int64_t>{0, 10}));
}

TEST(Moments, AMomentThatCannotExceedIsNone) {
  MemoryProfile profile({2});
  profile.Add(0, 0, 5, {3, 7});
  profile.Add(-1, 2, 3, {3});
  ChoiceProblem core;
  core.domain = {2};
  core.unary = {{0, 0}};
  core.segments.resize(1);
  profile.Write(10, &core);
  CompressMoments(&core);
  EXPECT_TRUE(core.capacity.empty());
  EXPECT_TRUE(core.segments[0].empty());
  EXPECT_FALSE(core.infeasible);
}

TEST(Moments, WhatIsUsedWhateverIsChosenMustFit) {
  MemoryProfile profile({2});
  profile.Add(0, 0, 5, {3, 7});
  profile.Add(-1, 2, 3, {2});
  ChoiceProblem core;
  core.domain = {2};
  core.unary = {{0, 0}};
  core.segments.resize(1);
  profile.Write(4, &core);
  CompressMoments(&core);
  EXPECT_TRUE(core.infeasible);
}

}  // namespace
}  // namespace tofu
