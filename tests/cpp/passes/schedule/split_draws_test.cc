#include "passes/schedule/split_draws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fetch/node_names.h"
#include "graph/verify_graph.h"
#include "mxnet/dialect/dialect.h"
#include "passes/partition/partition.h"
#include "passes/partition/verify_tiles.h"
#include "passes/schedule/training_step.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

std::vector<std::string> Names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.name);
  return names;
}

// y = x * noise; the gradient of x reads the noise, too.
MockGraph Noisy() {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4});
  const NodeEntry noise = mock.Noise({4});
  const NodeEntry y = mock.Elementwise("mul", {x, noise});
  mock.Head(y, "output");
  mock.Head(mock.Elementwise("mul", {y, noise}), "gradient:x");
  return mock;
}

Partitioned Divided(const MockGraph& mock, const Plan& plan) {
  return PartitionGraph(mock.graph, mock.table, plan, {{}, FetchKind::kMultiFetch});
}

// Every worker draws half of the noise, and needs all of it.
Plan FetchingPlan(const MockGraph& mock) {
  Plan plan = ReplicatedPlan(mock, {2});
  plan.op_cuts[1] = {0};
  return plan;
}

void Verify(const Graph& graph, const Partitioned& partitioned,
            const std::vector<PartitionedHead>& heads) {
  VerifyTiles(graph, partitioned.variables, heads, partitioned.workers, "the test");
}

TEST(SplitDraws, GivesTheRestVariables) {
  const MockGraph mock = Noisy();
  Plan plan = ReplicatedPlan(mock, {2});
  for (int node : {1, 2, 3}) plan.op_cuts[node] = {0};
  for (int entry = 0; entry < mock.graph.num_entries(); ++entry) {
    plan.tensor_cuts[entry] = {0};
  }
  Partitioned divided = Divided(mock, plan);
  const auto draws = SplitDraws(&divided);
  ASSERT_TRUE(draws.has_value());
  EXPECT_EQ(Names(draws->graph), (std::vector<std::string>{"noise1@0", "noise1@1"}));
  EXPECT_EQ(Names(divided.graph),
            (std::vector<std::string>{"x@0", "noise1@0/drawn0", "mul2@0", "mul3@0", "x@1",
                                      "noise1@1/drawn0", "mul2@1", "mul3@1"}));
  ASSERT_EQ(draws->drawn.size(), 2u);
  for (int w = 0; w < 2; ++w) {
    const SavedEntry& entry = draws->drawn[w];
    EXPECT_EQ(entry.name, "noise1@" + std::to_string(w) + "/drawn0");
    EXPECT_EQ(entry.worker, w);
    EXPECT_EQ(draws->graph.heads[entry.forward_head].node, w);
    EXPECT_EQ(divided.node_workers[2 + 3 * w], w);
  }
  EXPECT_EQ(divided.graph.shape({2, 0}), (Shape{2}));
  Verify(draws->graph, divided, {});
}

TEST(SplitDraws, LetsTheRestFetchFromWhatIsDrawn) {
  const MockGraph mock = Noisy();
  const Partitioned before = Divided(mock, FetchingPlan(mock));
  Partitioned divided = before;
  const auto draws = SplitDraws(&divided);
  ASSERT_TRUE(draws.has_value());
  EXPECT_EQ(draws->graph.num_nodes(), 2);
  EXPECT_EQ(draws->drawn.size(), 2u);
  int fetches = 0;
  for (const Node& node : divided.graph.nodes) {
    EXPECT_FALSE(node.runs_once) << node.name;
    if (node.op == kMultiFetchOp) ++fetches;
  }
  EXPECT_EQ(fetches, 2);
  ASSERT_EQ(divided.heads.size(), before.heads.size());
  for (size_t h = 0; h < divided.heads.size(); ++h) {
    for (size_t w = 0; w < 2; ++w) {
      const NodeEntry was = before.graph.heads[before.heads[h].tiles[w].head];
      const NodeEntry is = divided.graph.heads[divided.heads[h].tiles[w].head];
      EXPECT_EQ(divided.graph.nodes[is.node].name, before.graph.nodes[was.node].name);
    }
  }
}

TEST(SplitDraws, DrawsWhatAnOutputIs) {
  MockGraph mock;
  const NodeEntry noise = mock.Noise({4});
  mock.Head(noise, "output");
  mock.Head(mock.Elementwise("add", {noise, mock.Variable("x", {4})}), "gradient:x");
  Partitioned divided = Divided(mock, ReplicatedPlan(mock, {2}));
  ASSERT_TRUE(SplitDraws(&divided).has_value());
  const NodeEntry head = divided.graph.heads[divided.heads[0].tiles[0].head];
  EXPECT_TRUE(divided.graph.nodes[head.node].is_variable());
}

TEST(SplitDraws, FindsNothingToDraw) {
  MockGraph mock;
  mock.Head(mock.Elementwise("add", {mock.Variable("x", {4})}), "output");
  Partitioned divided = Divided(mock, ReplicatedPlan(mock, {2}));
  const std::string before = WriteGraph(divided.graph);
  const auto draws = SplitDraws(&divided);
  ASSERT_TRUE(draws.has_value());
  EXPECT_TRUE(draws->drawn.empty());
  EXPECT_EQ(draws->graph.num_nodes(), 0);
  EXPECT_EQ(WriteGraph(divided.graph), before);
}

TEST(SplitDraws, RefusesWhatNeedsAVariable) {
  for (const bool is_known : {true, false}) {
    MockGraph mock;
    const NodeEntry x = mock.Elementwise("add", {mock.Variable("x", {4})});
    mock.Head(is_known ? mock.Elementwise("noise", {x}) : mock.Undescribed(x), "output");
    Partitioned divided = Divided(mock, ReplicatedPlan(mock, {2}));
    const std::string before = WriteGraph(divided.graph);
    EXPECT_FALSE(SplitDraws(&divided).has_value());
    EXPECT_EQ(WriteGraph(divided.graph), before);
  }
}

TEST(SplitDraws, ComesFirstInAJointStep) {
  const MockGraph mock = Noisy();
  const Partitioned divided = Divided(mock, FetchingPlan(mock));
  std::string dump;
  const TrainingStep step = ScheduleStep(
      divided, true, [&](const std::string&, const std::string& text) { dump = text; });
  EXPECT_TRUE(step.is_joint);
  ASSERT_EQ(step.graphs.size(), 2u);
  EXPECT_EQ(Names(step.graphs[0]),
            (std::vector<std::string>{"noise1@0", "noise1@1", "tofu_order"}));
  ASSERT_EQ(step.saved.size(), 2u);
  EXPECT_EQ(step.graphs[0].heads[step.saved[1].forward_head].node, 1);
  int variables = 0;
  for (const Node& node : step.graphs[1].nodes) {
    variables += node.is_variable() && node.name == step.saved[1].name ? 1 : 0;
  }
  EXPECT_EQ(variables, 1) << "both halves read one variable";
  EXPECT_EQ(dump.rfind("draws\n", 0), 0u) << dump;
  EXPECT_FALSE(ScheduleStep(divided, false).is_joint);
}

TEST(SplitDraws, IsNotForPredictions) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4});
  mock.Head(mock.Elementwise("mul", {x, mock.Noise({4})}), "output");
  const TrainingStep step = ScheduleStep(Divided(mock, ReplicatedPlan(mock, {2})), true);
  EXPECT_EQ(step.graphs.size(), 1u);
  EXPECT_TRUE(step.saved.empty());
}

}  // namespace
}  // namespace tofu
