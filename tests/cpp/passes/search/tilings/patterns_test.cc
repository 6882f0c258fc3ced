#include "passes/search/tilings/patterns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "graph/box.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

constexpr int kW = kReplicated;
constexpr size_t kLimit = 10000;

std::vector<Cuts> Sorted(std::vector<Cuts> all) {
  const auto before = [](const Cuts& a, const Cuts& b) {
    return std::vector<int>(a) < std::vector<int>(b);
  };
  std::sort(all.begin(), all.end(), before);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// The patterns by their definition.
std::vector<Cuts> PatternsOfAll(const std::vector<Cuts>& all,
                                const PatternOptions& options) {
  std::vector<Cuts> patterns;
  for (const Cuts& cuts : all) {
    const Cuts profile = PatternOf(cuts, options.parts, 0);
    const auto& wanted = options.profiles;
    if (wanted.empty() ||
        std::find(wanted.begin(), wanted.end(), profile) != wanted.end()) {
      patterns.push_back(PatternOf(cuts, options.parts, options.ordered));
    }
  }
  return Sorted(patterns);
}

TEST(Patterns, EqualStepsAscendAndWholeOnesComeLast) {
  EXPECT_EQ(PatternOf({kW, 2, 0}, {2, 2, 2}, 0), (Cuts{0, 2, kW}));
  EXPECT_EQ(PatternOf({2, 1, 0}, {3, 2, 2}, 0), (Cuts{2, 0, 1}));
  EXPECT_EQ(PatternOf({1, 2, 0}, {2, 3, 2}, 0), (Cuts{1, 2, 0}))
      << "the order of unequal parts decides where tiles begin";
}

TEST(Patterns, OrderedStepsStayWhereTheyAre) {
  EXPECT_EQ(PatternOf({2, 1, 0}, {2, 2, 2}, 1), (Cuts{2, 0, 1}));
  EXPECT_EQ(PatternOf({2, 1, 0}, {2, 2, 2}, 3), (Cuts{2, 1, 0}));
}

TEST(Patterns, ThereAreFewWhereNoStepIsOrdered) {
  bool complete = false;
  const PatternOptions options{std::vector<int>(6, 2), 0, {}, kLimit};
  EXPECT_EQ(
      TensorPatterns({64, 64, 64, 64}, Cuts(6, kFree), {}, false, options, &complete)
          .size(),
      84);
  EXPECT_TRUE(complete);
}

TEST(Patterns, AreThoseOfAllAlternatives) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto draw = [&](int count) { return static_cast<int>(random() % count); };
    Shape shape(1 + draw(3));
    for (int64_t& extent : shape) extent = std::vector<int>{1, 2, 3, 4, 6, 12}[draw(6)];
    PatternOptions options;
    for (int steps = 1 + draw(4); steps > 0; --steps)
      options.parts.push_back(2 + draw(2));
    options.ordered = draw(static_cast<int>(options.parts.size()) + 1);
    options.limit = kLimit;
    const TensorFreedom may(draw(3) == 0, false, draw(3) - 1);
    Cuts given(options.parts.size(), kFree);
    bool complete = false;
    std::vector<Cuts> all =
        TensorAlternatives(shape, given, options.parts, {}, may, kLimit, &complete);
    if (draw(2) == 0) {  // gives a step the cut of some alternative
      const size_t step = draw(static_cast<int>(given.size()));
      given[step] = all[draw(static_cast<int>(all.size()))][step];
      all = TensorAlternatives(shape, given, options.parts, {}, may, kLimit, &complete);
    }
    if (draw(2) == 0) {
      options.profiles = {
          PatternOf(all[draw(static_cast<int>(all.size()))], options.parts, 0)};
    }
    EXPECT_EQ(Sorted(TensorPatterns(shape, given, {}, may, options, &complete)),
              PatternsOfAll(all, options));
    EXPECT_TRUE(complete);
  }
}

TEST(Patterns, OfOperatorsAreThoseOfAllAlternatives) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 4);
    const Graph& graph = example.graph();
    Restrictions restrictions;
    restrictions.forbid_output_reduction = seed % 3 == 0;
    for (int node = 0; node < graph.num_nodes(); ++node) {
      if (graph.nodes[node].is_variable()) continue;
      const PatternOptions options{{2, 2, 3}, seed % 4, {}, kLimit};
      const Cuts given(3, kFree);
      bool complete = false;
      const SplitVariables variables =
          VariablesOf(graph, example.table(), node, restrictions, false, seed % 2 - 1);
      const std::vector<Cuts> all = OperatorAlternatives(variables, given, options.parts,
                                                         restrictions, kLimit, &complete);
      EXPECT_EQ(
          Sorted(OperatorPatterns(variables, given, restrictions, options, &complete)),
          PatternsOfAll(all, options));
    }
  }
}

TEST(Patterns, MoreThanTheLimitAreNotComplete) {
  bool complete = true;
  TensorPatterns({8, 8}, {kFree, kFree}, {}, false, {{2, 2}, 0, {}, 3}, &complete);
  EXPECT_FALSE(complete);
  TensorPatterns({8, 8}, {kFree, kFree}, {}, false, {{2, 2}, 0, {}, 4}, &complete);
  EXPECT_TRUE(complete);
}

}  // namespace
}  // namespace tofu
