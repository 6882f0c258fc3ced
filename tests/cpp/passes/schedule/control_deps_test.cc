#include "passes/schedule/control_deps.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "passes/memory/bound_graph.h"
#include "passes/partition/graph_builder.h"
#include "passes/partition/partition.h"
#include "support/built_nodes.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

TEST(ControlDeps, AnExecutorRunsNodesAsTheyAreWritten) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, "x", 0);
  const NodeEntry a = Operator(&builder, "relu", "a", {x});
  const NodeEntry b = Operator(&builder, "_backward_relu", "b", {x});
  const NodeEntry c = Operator(&builder, "relu", "c", {a});
  Graph graph = std::move(builder.graph());
  graph.heads = {c, b};
  AddControlDeps(&graph);
  ASSERT_EQ(graph.num_nodes(), 5);
  EXPECT_EQ(graph.nodes[4].control_deps, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(graph.nodes[4].group, graph.nodes[0].group);
  ASSERT_EQ(graph.heads.size(), 3u);
  EXPECT_EQ(graph.heads[0].node, 4) << "the executor visits it first";
  EXPECT_EQ(graph.heads[1].node, c.node);
  EXPECT_EQ(graph.shape({4, 0}), (Shape{1}));
  EXPECT_EQ(graph.num_entries(), 5);
}

TEST(ControlDeps, AnEmptyGraphStaysEmpty) {
  Graph graph;
  AddControlDeps(&graph);
  EXPECT_EQ(graph.num_nodes(), 0);
}

TEST(ControlDepsRandom, KeepTheOrderOfAnyGraph) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const MockGraph mock = RandomGraph(&random);
    const Plan plan = RandomPlan(mock, {2, 2}, &random);
    Graph graph =
        PartitionGraph(mock.graph, mock.table, plan, {{}, FetchKind::kMultiFetch}).graph;
    AddControlDeps(&graph);
    const BoundOrder order = OrderOf(graph, NodeWorkers(graph, 4), graph.heads);
    ASSERT_EQ(order.size(), graph.num_nodes());
    for (int place = 0; place < order.size(); ++place) {
      ASSERT_EQ(order.sources[place], place);
    }
  }
}

}  // namespace
}  // namespace tofu
