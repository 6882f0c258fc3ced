#include "solver/problem/split_core.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "solver/random_core.h"

namespace tofu {
namespace {

ChoiceProblem Variables(int count, int domain) {
  ChoiceProblem core;
  core.domain.assign(count, domain);
  core.unary.assign(count, std::vector<int64_t>(domain, 0));
  core.segments.resize(count);
  return core;
}

TEST(SplitCore, WhatSharesNoTableAndNoMomentIsAPartOfItsOwn) {
  ChoiceProblem core = Variables(5, 2);
  core.pairs.push_back({0, 3, {0, 1, 2, 3}});
  core.capacity = {7, 8, 9};
  core.segments[1] = {{1, 3, {0, 4}}};
  core.segments[4] = {{2, 3, {0, 5}}};
  core.segments[0] = {{0, 1, {0, 6}}};
  const std::vector<CorePart> parts = SplitCore(core);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].variables, std::vector<int>{2}) << "fewest values";
  EXPECT_EQ(parts[1].variables, (std::vector<int>{0, 3}));
  EXPECT_EQ(parts[1].core.capacity, std::vector<int64_t>{7});
  ASSERT_EQ(parts[1].core.pairs.size(), 1u);
  EXPECT_EQ(parts[1].core.pairs[0].b, 1);
  EXPECT_EQ(parts[2].variables, (std::vector<int>{1, 4}));
  EXPECT_EQ(parts[2].core.capacity, (std::vector<int64_t>{8, 9}));
  EXPECT_EQ(parts[2].core.segments[1][0].begin, 1);
  EXPECT_EQ(parts[2].core.segments[1][0].end, 2);
}

TEST(SplitCore, ThePartsCostAndFitWhatTheWholeDoes) {
  int split = 0;
  for (int seed = 1; seed <= 300; ++seed) {
    ChoiceProblem core = RandomCore(seed);
    if (core.infeasible) continue;
    core.constant = 0;
    const std::vector<CorePart> parts = SplitCore(core);
    split += parts.size() > 1;
    ForEachChoice(core.domain, [&](const std::vector<int>& values) {
      int64_t cost = 0;
      bool fits = true;
      for (const CorePart& part : parts) {
        std::vector<int> own;
        for (int v : part.variables) own.push_back(values[v]);
        cost = SaturatingAdd(cost, part.core.Cost(own));
        fits = fits && part.core.Fits(own);
      }
      ASSERT_EQ(cost, core.Cost(values)) << "seed " << seed;
      ASSERT_EQ(fits, core.Fits(values)) << "seed " << seed;
    });
  }
  EXPECT_GT(split, 10);
}

TEST(SplitCore, EqualCoresHaveEqualCostsTablesAndMemory) {
  ChoiceProblem core = Variables(2, 2);
  core.pairs.push_back({0, 1, {0, 1, 2, 3}});
  core.capacity = {7};
  core.segments[1] = {{0, 1, {0, 4}}};
  EXPECT_TRUE(AreEqual(core, core));
  const auto differs = [&](const auto& change) {
    ChoiceProblem other = core;
    change(&other);
    return !AreEqual(core, other) && !AreEqual(other, core);
  };
  EXPECT_TRUE(differs([](ChoiceProblem* c) { c->constant = 1; }));
  EXPECT_TRUE(differs([](ChoiceProblem* c) { c->unary[0][1] = 1; }));
  EXPECT_TRUE(differs([](ChoiceProblem* c) { c->pairs[0].cost = {0, 1, 2, 4}; }));
  EXPECT_TRUE(differs([](ChoiceProblem* c) { c->pairs.push_back(c->pairs[0]); }));
  EXPECT_TRUE(differs([](ChoiceProblem* c) { c->capacity[0] = 8; }));
  EXPECT_TRUE(differs([](ChoiceProblem* c) { c->segments[1][0].bytes[1] = 5; }));
  EXPECT_TRUE(differs([](ChoiceProblem* c) { c->segments[1][0].end = 2; }));
  EXPECT_TRUE(differs([](ChoiceProblem* c) { c->segments[0] = c->segments[1]; }));
}

}  // namespace
}  // namespace tofu
