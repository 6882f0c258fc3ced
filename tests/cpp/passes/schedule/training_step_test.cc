#include "passes/schedule/training_step.h"

#include <gtest/gtest.h>

#include <string>

#include "passes/partition/partition.h"
#include "passes/schedule/control_deps.h"
#include "passes/schedule/join_phases.h"
#include "passes/schedule/phases.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

// y = x * w; gradient of w = x * y.
MockGraph TwoPhases() {
  MockGraph mock(0);
  const NodeEntry x = mock.Variable("x", {4});
  const NodeEntry w = mock.Variable("w", {4});
  const NodeEntry y = mock.Elementwise("mul", {x, w});
  mock.Head(y, "output");
  mock.Head(mock.Elementwise("mul", {x, y}), "gradient:w");
  return mock;
}

// A plan over two workers, each of which fetches half of x.
Plan FetchingPlan(const MockGraph& mock) {
  Plan plan = ReplicatedPlan(mock, {2});
  plan.tensor_cuts[0] = {0};
  return plan;
}

Partitioned Divided(const MockGraph& mock) {
  return PartitionGraph(mock.graph, mock.table, FetchingPlan(mock),
                        {{}, FetchKind::kMultiFetch});
}

TEST(TrainingStep, HasTheGraphsOfBothHalvesReadyToRun) {
  const MockGraph mock = TwoPhases();
  Phases phases = SplitPhases(Divided(mock));
  JointGraph expected = JoinPhases(phases);
  for (Graph* graph : {&phases.forward.graph, &phases.backward->graph, &expected.graph}) {
    AddControlDeps(graph);
  }
  const TrainingStep apart = ScheduleStep(Divided(mock), false);
  ASSERT_EQ(apart.graphs.size(), 2u);
  EXPECT_FALSE(apart.is_joint);
  EXPECT_EQ(WriteGraph(apart.graphs[0]), WriteGraph(phases.forward.graph));
  EXPECT_EQ(WriteGraph(apart.graphs[1]), WriteGraph(phases.backward->graph));
  EXPECT_EQ(apart.saved.size(), phases.saved.size());

  const TrainingStep joint = ScheduleStep(Divided(mock), true);
  ASSERT_EQ(joint.graphs.size(), 1u);
  EXPECT_TRUE(joint.is_joint);
  EXPECT_EQ(WriteGraph(joint.graphs[0]), WriteGraph(expected.graph));
  EXPECT_TRUE(joint.saved.empty());
  for (const TrainingStep* step : {&apart, &joint}) {
    EXPECT_EQ(step->workers, 2);
    EXPECT_EQ(step->variables.size(), 2u);
    ASSERT_EQ(step->forward_heads.size(), 1u);
    EXPECT_EQ(step->forward_heads[0].role, "output");
    EXPECT_EQ(step->forward_heads[0].tiles[0].head, 1) << "after the order";
    ASSERT_EQ(step->backward_heads.size(), 1u);
    EXPECT_EQ(step->backward_heads[0].role, "gradient:w");
  }
}

// The number of nodes that the executor runs in the forward half, and in both.
std::pair<int, int> NodesOf(const MockGraph& mock, const std::vector<int>& parts,
                            const PartitionOptions& options = {}) {
  const TrainingStep step = ScheduleStep(
      PartitionGraph(mock.graph, mock.table, ReplicatedPlan(mock, parts), options), true);
  EXPECT_TRUE(step.is_joint);
  return {step.forward_nodes, step.nodes};
}

TEST(TrainingStep, CountsTheNodesOfItsHalves) {
  EXPECT_EQ(NodesOf(TwoPhases(), {}), std::pair(3, 5)) << "the last one is the order";
  PartitionOptions options;
  options.heads = {"gradient"};
  EXPECT_EQ(NodesOf(TwoPhases(), {2}, options), std::pair(0, 9));
}

// Worker 1 reads a whole tensor of which worker 0 holds half: both copy the other's half.
TEST(TrainingStep, CountsTheCopiesBetweenWorkers) {
  const MockGraph mock = TwoPhases();
  const TrainingStep step =
      ScheduleStep(PartitionGraph(mock.graph, mock.table, FetchingPlan(mock)), true);
  const int copies = step.nodes - step.graphs[0].num_nodes();
  EXPECT_GT(copies, 0);
}

TEST(TrainingStep, OfOutputsAloneIsOneGraph) {
  MockGraph mock;
  mock.Head(mock.Elementwise("add", {mock.Variable("x", {4})}), "output");
  const Partitioned divided =
      PartitionGraph(mock.graph, mock.table, ReplicatedPlan(mock, {2}));
  for (const bool joint : {false, true}) {
    const TrainingStep step = ScheduleStep(divided, joint);
    EXPECT_EQ(step.graphs.size(), 1u);
    EXPECT_FALSE(step.is_joint);
    EXPECT_TRUE(step.backward_heads.empty());
  }
}

TEST(TrainingStep, ShowsItsPhases) {
  std::string shown;
  ScheduleStep(Divided(TwoPhases()), false,
               [&](const std::string& name, const std::string& dump) {
                 shown = name + "\n" + dump;
               });
  EXPECT_EQ(shown.rfind("phases\nforward\n", 0), 0u);
}

}  // namespace
}  // namespace tofu
