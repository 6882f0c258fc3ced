#include "solver/reduce_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "solver/random_core.h"

namespace tofu {
namespace {

constexpr int64_t kNo = kForbidden;

// Two variables of `domain` values each, joined by a table that nothing simplifies.
ChoiceProblem PairOf(int domain) {
  ChoiceProblem core;
  core.domain = {domain, domain};
  core.unary.assign(2, std::vector<int64_t>(domain, 0));
  core.segments.resize(2);
  std::vector<int64_t> cost;
  for (int x = 0; x < domain; ++x) {
    for (int y = 0; y < domain; ++y) cost.push_back(x == y ? 0 : 1 + x * y);
  }
  core.pairs.push_back({0, 1, cost});
  return core;
}

// Twenty variables in a row, with a few more tables, small costs and forbidden ones.
ChoiceProblem SparseCore(int seed, bool has_memory) {
  std::mt19937 random(seed);
  const auto below = [&random](int n) { return static_cast<int>(random() % n); };
  ChoiceProblem core;
  for (int v = 0; v < 20; ++v) {
    core.domain.push_back(2 + below(3));
    core.unary.emplace_back();
    for (int x = 0; x < core.domain[v]; ++x) core.unary[v].push_back(below(8));
  }
  core.segments.resize(20);
  if (has_memory) core.capacity = {25, 20};
  for (int v = 0; has_memory && v < 20; ++v) {
    std::vector<int64_t> bytes(core.domain[v], 0);
    for (size_t x = 1; x < bytes.size(); ++x) bytes[x] = below(10);
    core.segments[v].push_back({v % 2, 2, bytes});
  }
  std::set<std::pair<int, int>> pairs;
  for (int v = 0; v + 1 < 20; ++v) pairs.emplace(v, v + 1);
  for (int i = 0; i < 25; ++i) {
    const int a = below(20);
    const int b = below(20);
    if (a != b) pairs.emplace(std::min(a, b), std::max(a, b));
  }
  for (const auto& [a, b] : pairs) {
    std::vector<int64_t> cost;
    for (int i = 0; i < core.domain[a] * core.domain[b]; ++i) {
      cost.push_back(below(7) == 0 ? kNo : below(8));
    }
    core.pairs.push_back({a, b, cost});
  }
  return core;
}

TEST(ReduceCore, KeepsTheLeastCost) {
  for (int seed = 1; seed <= 1000; ++seed) {
    const ChoiceProblem core = RandomCore(seed);
    if (core.infeasible) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ReducedCore reduced = ReduceCore(core);
    const int64_t least = LeastCost(core);
    ASSERT_EQ(LeastCost(reduced.core), least);
    if (least >= kForbidden) continue;
    ForEachChoice(reduced.core.domain, [&](const std::vector<int>& values) {
      const int64_t cost = reduced.core.Cost(values);
      if (cost >= kForbidden || !reduced.core.Fits(values)) return;
      const std::vector<int> lifted = reduced.lift(values);
      ASSERT_EQ(core.Cost(lifted), cost);
      ASSERT_TRUE(core.Fits(lifted));
    });
  }
}

// A rule that missed a change near a variable would apply the second time.
TEST(ReduceCore, WhatIsLeftCannotBeReducedFurther) {
  int64_t left = 0;
  for (int seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const bool has_memory : {false, true}) {
      const ReducedCore once = ReduceCore(SparseCore(seed, has_memory));
      if (once.core.infeasible) continue;
      const ReducedCore twice = ReduceCore(once.core);
      ASSERT_EQ(twice.core.domain, once.core.domain);
      ASSERT_EQ(twice.core.pairs.size(), once.core.pairs.size());
      left += once.core.num_variables();
    }
  }
  EXPECT_GT(left, 2000);
}

TEST(ReduceCore, OnlyWantedValuesAreLeft) {
  int restricted = 0;
  for (int seed = 1; seed <= 300; ++seed) {
    const ChoiceProblem core = RandomCore(seed);
    if (core.infeasible) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    ValueMask wanted;
    for (size_t v = 0; v < core.domain.size(); ++v) {
      wanted.emplace_back(core.domain[v], 1);
      wanted.back()[(seed + v) % core.domain[v]] = core.domain[v] == 1;
    }
    int64_t least = kForbidden;
    ForEachChoice(core.domain, [&](const std::vector<int>& values) {
      for (size_t v = 0; v < values.size(); ++v) {
        if (!wanted[v][values[v]]) return;
      }
      if (core.Fits(values)) least = std::min(least, core.Cost(values));
    });
    ASSERT_EQ(LeastCost(ReduceCore(core, wanted).core), least);
    restricted += least > LeastCost(core);
  }
  EXPECT_GT(restricted, 50);
}

// Ten tables add up to more than 2^63.
TEST(ReduceCore, ManyHugeCostsMakeNoValueCheap) {
  constexpr int kNeighbours = 10;
  ChoiceProblem core;
  core.domain.assign(1 + kNeighbours, 2);
  core.unary.assign(1 + kNeighbours, {0, 0});
  core.segments.resize(1 + kNeighbours);
  for (int v = 1; v <= kNeighbours; ++v) {
    // Value 0 of the first variable is free, value 1 is not.
    core.pairs.push_back({0, v, {0, 0, kNo - 1, kNo - 1}});
    if (v > 1) core.pairs.push_back({v - 1, v, {0, 1, 1, 0}});
  }
  EXPECT_EQ(LeastCost(ReduceCore(core).core), 0);
}

TEST(ReduceCore, AVariableWithoutUsesIsMinimisedOut) {
  const ReducedCore reduced = ReduceCore(PairOf(3));
  EXPECT_EQ(reduced.core.num_variables(), 0);
  EXPECT_EQ(reduced.lift({}), (std::vector<int>{0, 0}));
}

// The variable's neighbours use memory, so only the variable can be eliminated. They
// share a table already.
TEST(ReduceCore, AVariableBetweenTwoOthersIsAddedToTheirTable) {
  ChoiceProblem core = PairOf(2);
  core.domain.push_back(2);
  core.unary.push_back({0, 0});
  core.pairs = {{0, 1, {0, 1, 1, 0}}, {0, 2, {0, 5, 5, 0}}, {1, 2, {0, 7, 7, 0}}};
  core.capacity = {3};
  core.segments = {{{0, 1, {2, 1}}}, {{0, 1, {1, 2}}}, {}};
  const ReducedCore reduced = ReduceCore(core);
  ASSERT_EQ(reduced.core.num_variables(), 2);
  ASSERT_EQ(reduced.core.pairs.size(), 1u);
  EXPECT_EQ(reduced.core.pairs[0].cost.vector(), (std::vector<int64_t>{0, 6, 6, 0}));
  EXPECT_EQ(reduced.lift({1, 1}), (std::vector<int>{1, 1, 1}));
}

TEST(ReduceCore, AValueThatATableForbidsWithEveryOtherGoes) {
  ChoiceProblem core = PairOf(3);
  core.pairs[0].cost = {kNo, kNo, kNo, 0, 2, 9, 9, 2, 0};
  core.capacity = {4};
  core.segments = {{{0, 1, {0, 1, 2}}}, {{0, 1, {2, 1, 3}}}};
  const ReducedCore reduced = ReduceCore(core);
  ASSERT_EQ(reduced.core.num_variables(), 2);
  EXPECT_EQ(reduced.core.domain, (std::vector<int>{2, 3}));
  EXPECT_EQ(reduced.lift({0, 0}), (std::vector<int>{1, 0}));
}

TEST(ReduceCore, AValueThatCostsAndUsesNoLessGoes) {
  ChoiceProblem core = PairOf(2);
  core.pairs[0].cost = {5, 0, 4, 4};  // value 0 of a is cheaper only where b has 1
  core.unary = {{9, 1}, {0, 0}};      // and not even there with its own cost
  core.capacity = {3};
  core.segments = {{{0, 1, {2, 2}}}, {{0, 1, {0, 2}}}};
  const ReducedCore reduced = ReduceCore(core);
  EXPECT_EQ(reduced.core.num_variables(), 0);
  EXPECT_EQ(reduced.core.constant, 5);
  EXPECT_EQ(reduced.lift({})[0], 1);
}

// No other rule removes the value: it fits, and is allowed with every value of the other.
TEST(ReduceCore, AValueThatAnotherBeatsWhateverTheOthersChooseGoes) {
  ChoiceProblem core = PairOf(3);
  core.pairs[0].cost = {0, 2, 9, 9, 2, 0, 1, 3, 10};  // the last row is the first plus 1
  core.capacity = {4};
  core.segments = {{{0, 1, {1, 2, 1}}}, {{0, 1, {3, 2, 1}}}};
  EXPECT_EQ(ReduceCore(core).core.domain, (std::vector<int>{2, 3}));
  core.segments[0][0].bytes[2] = 0;  // it uses less
  EXPECT_EQ(ReduceCore(core).core.domain, (std::vector<int>{3, 3}));
}

TEST(ReduceCore, AValueThatUsesMoreThanIsLeftGoes) {
  ChoiceProblem core = PairOf(2);
  core.unary = {{0, 0}, {0, 100}};
  core.pairs[0].cost = {50, 0, 0, 50};
  core.capacity = {5, 4};
  core.segments = {{{0, 2, {0, 2}}}, {{1, 2, {5, 0}}}};
  const ReducedCore reduced = ReduceCore(core);  // b's cheap value never fits
  EXPECT_EQ(reduced.core.constant, 100);
  EXPECT_EQ(reduced.lift({}), (std::vector<int>{0, 1}));
}

TEST(ReduceCore, AFunctionOfAnotherVariableBringsItsUses) {
  ChoiceProblem core = PairOf(3);
  core.domain[1] = 2;
  core.unary = {{0, 1, 2}, {5, 0}};
  core.pairs[0].cost = {0, kNo, kNo, 0, kNo, 0};  // b = 0 where a = 0, else 1
  core.capacity = {5};
  core.segments = {{{0, 1, {4, 4, 0}}}, {{0, 1, {0, 3}}}};
  const ReducedCore reduced = ReduceCore(core);
  EXPECT_EQ(LeastCost(reduced.core), 2);  // a = 1 needs more memory than fits
}

TEST(ReduceCore, ASumOfTwoCostsIsNoTable) {
  ChoiceProblem core = PairOf(2);
  core.pairs[0].cost = {7, 9, 3, 5};
  core.capacity = {2};
  core.segments = {{{0, 1, {1, 2}}}, {{0, 1, {2, 1}}}};
  EXPECT_TRUE(ReduceCore(core).core.pairs.empty());
  EXPECT_EQ(LeastCost(ReduceCore(core).core), LeastCost(core));
}

}  // namespace
}  // namespace tofu
