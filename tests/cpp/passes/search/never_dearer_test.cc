// A plan with more choices costs no more: whole tensors, a higher memory limit, no pin.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

#include "base/error.h"
#include "graph/names.h"
#include "passes/search/make_plan.h"
#include "support/example_graphs.h"
#include "support/example_time_model.h"
#include "support/recount.h"

namespace tofu {
namespace {

constexpr int kWorkers[] = {2, 4, 6, 8};

// Residual blocks with element-wise operators that are worth cutting differently.
ExampleGraph ElementwiseBlocks(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](size_t count) { return static_cast<size_t>(random() % count); };
  constexpr int64_t kSizes[] = {8, 12, 16, 24, 64};
  ExampleGraph graph;
  const int64_t batch = kSizes[pick(5)];
  const int64_t width = kSizes[pick(5)];
  NodeEntry x = graph.Variable("x", {batch, width}, "data");
  const size_t blocks = 1 + pick(3);
  for (size_t i = 0; i < blocks; ++i) {
    const std::string n = std::to_string(i);
    x = graph.Elementwise("square" + n, {graph.Elementwise("relu" + n, {x}), x}, "mul");
    const NodeEntry w = graph.Variable("w" + n, {width, width}, "parameter");
    NodeEntry y = graph.MatMul("dot" + n, x, w);
    if (pick(3) == 0) y = graph.RowWise("softmax" + n, {y});
    y = graph.Elementwise("act" + n, {y}, "tanh");
    const NodeEntry gradient = graph.MatMul("gw" + n, x, y, true, false);
    if (pick(2) == 0) {
      graph.Head(graph.Elementwise("new_w" + n, {w, gradient}, "update"), "update:w" + n);
    }
    graph.Head(gradient, "gradient:w" + n);
    x = pick(4) == 0 ? y : graph.Elementwise("sum" + n, {x, y}, "add");
  }
  graph.Head(x, "output");
  return graph;
}

// Each seed gives two graphs, and numbers of workers in turn.
template <typename Check>
void ForGraphs(unsigned seeds, Check check) {
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    for (const bool blocks : {false, true}) {
      SCOPED_TRACE((blocks ? "blocks, seed " : "random graph, seed ") +
                   std::to_string(seed));
      ExampleGraph example = blocks ? ElementwiseBlocks(seed)
                                    : RandomGraph(seed, 4 + static_cast<int>(seed % 8));
      const Graph& graph = example.graph();
      PlanOptions options;
      options.workers = kWorkers[seed % 4];
      const TimeModel machine = ModelOf(graph, TwoHosts(options.workers, seed % 2 == 0));
      check(example, options);
      if (seed % 8 != 0) continue;  // searches for time take longer
      options.objective.machine = &machine;
      check(example, options);
    }
  }
}

Plan PlanOf(ExampleGraph* example, const PlanOptions& options) {
  return MakePlan(example->graph(), example->table(), options);
}

// The least limit of all for which a plan is found.
int64_t LeastLimit(ExampleGraph* example, PlanOptions options) {
  options.memory_limit_bytes = 1;
  try {
    PlanOf(example, options);
  } catch (const UserError& error) {
    const std::string text = error.what();
    const std::string before = "the least found is ";
    return std::atoll(text.c_str() + text.find(before) + before.size());
  }
  return 1;
}

TEST(NeverDearer, WithWholeTensorsThanWithout) {
  int compared = 0;
  int cheaper = 0;
  ForGraphs(600, [&](ExampleGraph& example, PlanOptions options) {
    const Plan cut = PlanOf(&example, options);
    options.allow_replication = true;
    const Plan whole = PlanOf(&example, options);
    ASSERT_LE(whole.cost(), cut.cost()) << WriteGraph(example.graph());
    ASSERT_LE(whole.lower_bound(), whole.cost());
    ASSERT_EQ(Recount(example.graph(), example.table(), whole), whole.total_bytes());
    ++compared;
    cheaper += whole.cost() < cut.cost();
  });
  EXPECT_GE(compared, 1200);
  EXPECT_GE(cheaper, 100);
}

TEST(NeverDearer, WithMoreMemoryThanWithLess) {
  int cheaper = 0;
  ForGraphs(120, [&](ExampleGraph& example, PlanOptions options) {
    const int64_t least = LeastLimit(&example, options);
    int64_t cost = -1;
    for (const int64_t tenths : {10, 11, 13, 20, 40, 0}) {
      options.memory_limit_bytes = least * tenths / 10;  // 0: no limit
      const Plan plan = PlanOf(&example, options);
      if (cost >= 0) {
        ASSERT_LE(plan.cost(), cost) << WriteGraph(example.graph());
        cheaper += plan.cost() < cost;
      }
      cost = plan.cost();
    }
  });
  EXPECT_GE(cheaper, 10);
}

TEST(NeverDearer, WithoutAPinThanWithIt) {
  int cheaper = 0;
  ForGraphs(300, [&](ExampleGraph& example, PlanOptions options) {
    const Graph& graph = example.graph();
    const Plan free = PlanOf(&example, options);
    const int entry = options.workers * 7 % graph.num_entries();
    options.pins[EntryName(graph, entry)] = {0};
    try {
      const Plan pinned = PlanOf(&example, options);
      ASSERT_LE(free.cost(), pinned.cost()) << WriteGraph(graph);
      cheaper += free.cost() < pinned.cost();
    } catch (const UserError&) {  // the dimension does not divide
    }
  });
  EXPECT_GE(cheaper, 10);
}

}  // namespace
}  // namespace tofu
