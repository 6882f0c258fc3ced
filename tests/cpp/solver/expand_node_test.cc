#include "solver/expand_node.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "solver/random_core.h"

namespace tofu {
namespace {

SearchNode Root(const ChoiceProblem& core, int64_t top) {
  SearchNode root;
  root.part = std::make_shared<SearchPart>(
      core, [](const std::vector<int>& values) { return values; }, top);
  root.state = root.part->ascent.Start(top);
  root.rounds = 1;
  return root;
}

// Expands the node and all its children, without a queue and without pruning.
int64_t LeastBelow(SearchNode node, int64_t top, int* nodes) {
  ExpandOptions options;
  options.top = top;
  const int64_t bound = node.bound();
  ++*nodes;
  Expanded expanded = ExpandNode(std::move(node), options);
  EXPECT_FALSE(expanded.open.has_value());
  int64_t least = std::min(top, expanded.best.cost);
  for (SearchNode& child : expanded.children) {
    EXPECT_GE(child.bound(), bound);
    least = std::min(least, LeastBelow(std::move(child), least, nodes));
  }
  return least;
}

TEST(ExpandNode, TheNodesBelowHoldTheLeastCost) {
  int nodes = 0, cores = 0;
  for (int seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ChoiceProblem core = RandomCore(seed);
    if (core.infeasible) continue;
    SearchNode root = Root(core, kForbidden);
    if (root.state.empty) continue;
    ++cores;
    ASSERT_EQ(LeastBelow(std::move(root), kForbidden, &nodes), LeastCost(core));
  }
  EXPECT_GT(nodes, cores) << "some were divided";
}

TEST(ExpandNode, WhatItFindsCostsWhatItSaysAndFits) {
  int num_found = 0;
  for (int seed = 1; seed <= 200; ++seed) {
    const ChoiceProblem core = RandomCore(seed);
    if (core.infeasible) continue;
    SearchNode root = Root(core, kForbidden);
    if (root.state.empty) continue;
    const Expanded expanded = ExpandNode(std::move(root), ExpandOptions());
    if (expanded.best.values.empty()) continue;
    ++num_found;
    ASSERT_EQ(core.Cost(expanded.best.values), expanded.best.cost) << "seed " << seed;
    ASSERT_TRUE(core.Fits(expanded.best.values)) << "seed " << seed;
  }
  EXPECT_GT(num_found, 50);
}

TEST(ExpandNode, AfterTheDeadlineTheNodeIsStillOpen) {
  const ChoiceProblem core = RandomCore(3);
  ExpandOptions options;
  options.deadline = Deadline();
  const Expanded expanded = ExpandNode(Root(core, kForbidden), options);
  EXPECT_TRUE(expanded.open.has_value());
  EXPECT_TRUE(expanded.children.empty());
}

TEST(ExpandNode, AListenerEndsTheWork) {
  const ChoiceProblem core = RandomCore(3);
  ExpandOptions options;
  int calls = 0;
  options.listener = [&](const FoundChoice*, int64_t) {
    ++calls;
    return false;
  };
  SearchNode root = Root(core, kForbidden);
  root.rounds = 100;
  const Expanded expanded = ExpandNode(std::move(root), options);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(expanded.open.has_value() || expanded.children.empty());
}

}  // namespace
}  // namespace tofu
