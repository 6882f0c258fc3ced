#include "passes/schedule/phases.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "passes/partition/partition.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

std::vector<std::string> Names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.name);
  return names;
}

// y = x * w; gradient of w = x * y, which reads y and the variable x.
MockGraph TwoPhases() {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4});
  const NodeEntry w = mock.Variable("w", {4});
  const NodeEntry y = mock.Elementwise("mul", {x, w});
  mock.Head(y, "output");
  mock.Head(mock.Elementwise("mul", {x, y}), "gradient:w");
  return mock;
}

Partitioned Divide(const MockGraph& mock, const std::vector<int>& parts = {2}) {
  return PartitionGraph(mock.graph, mock.table, ReplicatedPlan(mock, parts));
}

TEST(Phases, SaveWhatCrossesAndRepeatVariables) {
  const Phases phases = SplitPhases(Divide(TwoPhases()));
  EXPECT_EQ(Names(phases.forward.graph),
            (std::vector<std::string>{"x@0", "w@0", "mul2@0", "x@1", "w@1", "mul2@1"}));
  ASSERT_TRUE(phases.backward.has_value());
  EXPECT_EQ(Names(phases.backward->graph),
            (std::vector<std::string>{"x@0", "mul2@0/saved0", "mul3@0", "x@1",
                                      "mul2@1/saved0", "mul3@1"}));
  ASSERT_EQ(phases.saved.size(), 2u);
  EXPECT_EQ(phases.saved[1].name, "mul2@1/saved0");
  EXPECT_EQ(phases.saved[1].worker, 1);
  // The saved entry is the output, so both share one head.
  EXPECT_EQ(phases.saved[1].forward_head, 1);
  EXPECT_EQ(phases.forward.graph.heads.size(), 2u);
  EXPECT_EQ(phases.backward->heads[0].role, "gradient:w");
}

TEST(Phases, OfOutputsAloneHaveNoBackward) {
  MockGraph mock;
  mock.Head(mock.Elementwise("add", {mock.Variable("x", {4})}), "output");
  const Phases phases = SplitPhases(Divide(mock));
  EXPECT_FALSE(phases.backward.has_value());
  EXPECT_TRUE(phases.saved.empty());
}

TEST(Phases, GiveAStateThatForwardComputesAsASavedHead) {
  MockGraph mock;
  const NodeEntry mean = mock.Elementwise("mul", {mock.Variable("running_mean", {4})});
  mock.Head(mock.Elementwise("add", {mean}), "output");
  mock.Head(mean, "aux:running_mean");
  const Phases phases = SplitPhases(Divide(mock));
  ASSERT_TRUE(phases.backward.has_value());
  EXPECT_EQ(Names(phases.backward->graph),
            (std::vector<std::string>{"mul1@0/saved0", "mul1@1/saved0"}));
  EXPECT_EQ(phases.backward->heads[0].tiles[1].head, 1);
  EXPECT_EQ(phases.saved[0].forward_head, 2);
}

TEST(Phases, WorkForOneWorkerAndForGradientsAlone) {
  MockGraph mock = TwoPhases();
  EXPECT_EQ(SplitPhases(Divide(mock, {})).saved.size(), 1u);
  PartitionOptions options;
  options.heads = {"gradient"};
  const Phases phases = SplitPhases(
      PartitionGraph(mock.graph, mock.table, ReplicatedPlan(mock, {2}), options));
  EXPECT_EQ(phases.forward.graph.num_nodes(), 0);
  EXPECT_EQ(phases.backward->graph.num_nodes(), 8);
}

// Worker 1 needs no first output of its instance, but must write it.
TEST(Phases, KeepTheOutputsOfABackwardInstanceTogether) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4, 8});
  mock.Head(mock.Elementwise("add", {x}), "output");
  const NodeEntry moments = mock.Moments(x);
  mock.Head({moments.node, 0}, "gradient:mean");
  mock.Head({moments.node, 2}, "gradient:variance");
  Plan plan = ReplicatedPlan(mock, {2, 2});
  plan.op_cuts[moments.node] = {1, kReplicated};
  plan.tensor_cuts[mock.graph.entry_id({moments.node, 0})] = {kReplicated, 0};
  plan.tensor_cuts[mock.graph.entry_id({moments.node, 2})] = {1, kReplicated};
  const Phases phases = SplitPhases(PartitionGraph(mock.graph, mock.table, plan));
  const Graph& backward = phases.backward->graph;
  std::vector<std::string> read;
  for (NodeEntry head : backward.heads) {
    if (backward.nodes[head.node].op == mock.graph.nodes[moments.node].op) {
      read.push_back(backward.nodes[head.node].name + "." + std::to_string(head.index));
    }
  }
  EXPECT_EQ(std::count(read.begin(), read.end(), "moments2@1.0"), 1);
  for (NodeEntry head : phases.forward.graph.heads) {
    EXPECT_EQ(phases.forward.graph.nodes[head.node].op, "add");
  }
}

TEST(Phases, AreDumpedForAPerson) {
  const std::string text = DumpPhases(SplitPhases(Divide(TwoPhases(), {})));
  EXPECT_EQ(text,
            "forward\n"
            "x@0  variable  worker0  float64[4]\n"
            "w@0  variable  worker0  float64[4]\n"
            "mul2@0  mul  worker0  float64[4]  <- x@0, w@0\n"
            "head  mul2@0.0\n"
            "\n"
            "backward\n"
            "x@0  variable  worker0  float64[4]\n"
            "mul2@0/saved0  variable  worker0  float64[4]\n"
            "mul3@0  mul  worker0  float64[4]  <- x@0, mul2@0/saved0\n"
            "head  mul3@0.0\n"
            "\n"
            "saved  mul2@0/saved0  worker0  forward head 0\n");
}

}  // namespace
}  // namespace tofu
