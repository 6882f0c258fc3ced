#include "passes/schedule/training_step.h"

#include <gtest/gtest.h>

#include <string>

#include "fetch/crossing.h"
#include "passes/partition/partition.h"
#include "passes/schedule/control_deps.h"
#include "passes/schedule/drop_acknowledgements.h"
#include "passes/schedule/join_phases.h"
#include "passes/schedule/order_nodes.h"
#include "passes/schedule/phases.h"
#include "passes/schedule/relay_regions.h"
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

// Partitions with handles even for small tiles.
Partitioned Divided(const MockGraph& mock, Crossing crossing = Crossing::kPlainTiles) {
  return PartitionGraph(mock.graph, mock.table, FetchingPlan(mock),
                        {{}, FetchKind::kMultiFetch, true, crossing, 0});
}

TEST(TrainingStep, HasTheGraphsOfBothHalvesReadyToRun) {
  const MockGraph mock = TwoPhases();
  Partitioned ordered = Divided(mock);
  std::vector<int> workers;
  for (int number : OrderNodes(&ordered.graph)) {
    workers.push_back(ordered.node_workers[number]);
  }
  ordered.node_workers = workers;
  Phases phases = SplitPhases(ordered);
  DropAcknowledgements(&phases);
  for (Graph* graph : {&phases.forward.graph, &phases.backward->graph}) {
    RelayRegions(graph);
    OrderExchange(graph);
    AddControlDeps(graph);
  }
  const TrainingStep apart = ScheduleStep(Divided(mock), {});
  ASSERT_EQ(apart.graphs.size(), 2u);
  EXPECT_FALSE(apart.is_joint);
  EXPECT_EQ(WriteGraph(apart.graphs[0]), WriteGraph(phases.forward.graph));
  EXPECT_EQ(WriteGraph(apart.graphs[1]), WriteGraph(phases.backward->graph));
  EXPECT_EQ(apart.saved.size(), phases.saved.size());

  const TrainingStep joint = ScheduleStep(Divided(mock), {true});
  const JointGraph expected = JoinPhases(phases);
  ASSERT_EQ(joint.graphs.size(), 1u);
  EXPECT_TRUE(joint.is_joint);
  EXPECT_EQ(WriteGraph(joint.graphs[0]), WriteGraph(expected.graph));
  EXPECT_EQ(joint.forward_nodes, expected.forward_nodes);
  EXPECT_EQ(joint.nodes, expected.nodes);
  EXPECT_TRUE(joint.saved.empty());
  for (const TrainingStep* step : {&apart, &joint}) {
    EXPECT_EQ(step->workers, 2);
    EXPECT_EQ(step->variables.size(), 2u);
    ASSERT_EQ(step->forward_heads.size(), 1u);
    EXPECT_EQ(step->forward_heads[0].role, "output");
    ASSERT_EQ(step->backward_heads.size(), 1u);
    EXPECT_EQ(step->backward_heads[0].role, "gradient:w");
  }
}

TEST(TrainingStep, RelaysRegionsAndChainsNodesOnlyWhenAsked) {
  const MockGraph mock = TwoPhases();
  const auto dependencies = [](const TrainingStep& step) {
    size_t count = 0;
    for (const Graph& graph : step.graphs) {
      for (const Node& node : graph.nodes) count += node.control_deps.size();
    }
    return count;
  };
  const TrainingStep chained = ScheduleStep(Divided(mock, Crossing::kCopies), {true});
  EXPECT_NE(WriteGraph(chained.graphs[0]).find("/relay"), std::string::npos);
  EXPECT_GT(dependencies(chained), 0u);
  EXPECT_EQ(dependencies(ScheduleStep(Divided(mock), {true, false})), 0u);
  const TrainingStep direct =
      ScheduleStep(Divided(mock, Crossing::kCopies), {true, true, false});
  EXPECT_EQ(WriteGraph(direct.graphs[0]).find("/relay"), std::string::npos);
  EXPECT_GT(dependencies(direct), 0u);
  const TrainingStep read = ScheduleStep(Divided(mock, Crossing::kPlainTiles), {true});
  EXPECT_EQ(WriteGraph(read.graphs[0]).find("/relay"), std::string::npos)
      << "no copies of acknowledgements queue";
}

TEST(TrainingStep, OfOutputsAloneIsOneGraph) {
  MockGraph mock;
  mock.Head(mock.Elementwise("add", {mock.Variable("x", {4})}), "output");
  const Partitioned divided =
      PartitionGraph(mock.graph, mock.table, ReplicatedPlan(mock, {2}));
  for (const bool joint : {false, true}) {
    const TrainingStep step = ScheduleStep(divided, {joint});
    EXPECT_EQ(step.graphs.size(), 1u);
    EXPECT_FALSE(step.is_joint);
    EXPECT_TRUE(step.backward_heads.empty());
  }
}

TEST(TrainingStep, ShowsItsPhases) {
  std::string shown;
  ScheduleStep(Divided(TwoPhases()), {},
               [&](const std::string& name, const std::string& dump) {
                 shown = name + "\n" + dump;
               });
  EXPECT_EQ(shown.rfind("phases\nforward\n", 0), 0u);
}

}  // namespace
}  // namespace tofu
