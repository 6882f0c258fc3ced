#include "solver/dual_ascent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "solver/raise_bound.h"
#include "solver/random_core.h"

namespace tofu {
namespace {

// The state's cost of a choice, which is at most its cost if it fits.
double Rewritten(const ChoiceProblem& core, const DualAscent& ascent,
                 const DualState& state, const std::vector<int>& values) {
  double sum = state.constant;
  for (int v = 0; v < core.num_variables(); ++v) {
    sum += ascent.Reduced(state, v, values[v]);
  }
  return sum;
}

TEST(DualAscent, NoPricesMakeTheBoundExceedTheLeastCost) {
  int with_memory = 0;
  for (int seed = 1; seed <= 600; ++seed) {
    const ChoiceProblem core = RandomCore(seed);
    const int64_t least = LeastCost(core);
    if (least >= kForbidden) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const DualAscent ascent(core, 1000000);
    DualState state = ascent.Start(1000000);
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    with_memory += !core.capacity.empty();
    for (int round = 0; round < 8; ++round) {
      std::vector<double> prices;
      for (size_t t = 0; t < core.capacity.size(); ++t) {
        prices.push_back(
            std::ldexp(static_cast<double>(random() % 1000) / 300, ascent.exponent()));
      }
      ascent.SetPrices(prices, &state);
      ASSERT_LE(ascent.Bound(state), least);
      for (bool forward : {true, false}) {
        const double before = state.constant;
        ascent.Sweep(forward, &state, nullptr);
        ASSERT_GE(state.constant, before);
        ASSERT_LE(ascent.Bound(state), least);
      }
      // Only expensive values are removed, so cheap choices still count.
      ForEachChoice(core.domain, [&](const std::vector<int>& values) {
        const int64_t cost = core.Cost(values);
        if (cost >= kForbidden || !core.Fits(values)) return;
        ASSERT_LE(Rewritten(core, ascent, state, values), ascent.Scaled(cost));
      });
    }
  }
  EXPECT_GT(with_memory, 50);
}

TEST(DualAscent, OnlyValuesWithoutACheaperChoiceGo) {
  int removed = 0;
  for (int seed = 1; seed <= 600; ++seed) {
    const ChoiceProblem core = RandomCore(seed);
    const int64_t least = LeastCost(core);
    if (least >= kForbidden) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int64_t top = least + 1 + seed % 3;
    const DualAscent ascent(core, top);
    DualState state = ascent.Start(top);
    RaiseOptions options;
    options.rounds = 50;
    RaiseBound(
        core, ascent, options, [&](const std::vector<int>&) { return top; }, &state,
        nullptr);
    ASSERT_FALSE(state.empty);
    ForEachChoice(core.domain, [&](const std::vector<int>& values) {
      if (core.Cost(values) >= top || !core.Fits(values)) return;
      for (int v = 0; v < core.num_variables(); ++v) {
        ASSERT_FALSE(ascent.IsRemoved(state, v, values[v])) << v;
      }
    });
    for (const std::vector<char>& wanted : ascent.Wanted(state)) {
      for (char is_wanted : wanted) removed += !is_wanted;
    }
  }
  EXPECT_GT(removed, 1000);
}

TEST(DualAscent, WhereNothingCheaperThanTheTopIsLeftTheStateIsEmpty) {
  ChoiceProblem core;
  core.domain = {2, 2};
  core.unary = {{3, 4}, {2, 2}};
  core.segments.resize(2);
  core.pairs.push_back({0, 1, {1, 2, 3, 4}});
  const DualAscent ascent(core, 6);
  EXPECT_FALSE([&] {
    DualState state = ascent.Start(7);
    ascent.Sweep(true, &state, nullptr);
    ascent.Sweep(false, &state, nullptr);
    return state.empty;
  }());
  DualState state = ascent.Start(6);
  ascent.Sweep(true, &state, nullptr);
  ascent.Sweep(false, &state, nullptr);
  EXPECT_TRUE(state.empty);
}

TEST(DualAscent, HugeCostsAreRoundedDown) {
  ChoiceProblem core;
  core.domain = {2, 2};
  const int64_t huge = kForbidden / 4 + 12345;
  core.unary = {{huge, huge + 1}, {huge + 3, huge}};
  core.segments.resize(2);
  core.pairs.push_back({0, 1, {1, 2, 3, 4}});
  const DualAscent ascent(core, kForbidden);
  DualState state = ascent.Start(kForbidden);
  ascent.Sweep(true, &state, nullptr);
  EXPECT_LE(ascent.Bound(state), 2 * huge + 2);
  EXPECT_GE(ascent.Bound(state), 2 * huge - (int64_t{1} << 20));
}

}  // namespace
}  // namespace tofu
