#include "passes/schedule/control_deps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "mxnet/dialect/dialect.h"
#include "passes/partition/graph_builder.h"
#include "passes/partition/partition.h"
#include "passes/schedule/order_nodes.h"
#include "support/built_nodes.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

// Orders and chains the nodes; `workers` follow.
void InOrder(Graph* graph, std::vector<int>* workers = nullptr) {
  const std::vector<int> order = OrderNodes(graph);
  if (workers != nullptr) {
    const std::vector<int> before = *workers;
    for (size_t i = 0; i < order.size(); ++i) (*workers)[i] = before[order[i]];
  }
  AddControlDeps(graph);
}

// The names of the nodes that a node waits for in addition to its inputs.
std::vector<std::string> WaitsFor(const Graph& graph, const std::string& name) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    if (node.name != name) continue;
    for (int other : node.control_deps) names.push_back(graph.nodes[other].name);
  }
  return names;
}

TEST(ControlDeps, ChainTheOperatorsOfEachWorker) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, "x", 0);
  const NodeEntry y = Variable(&builder, "y", 1);
  for (const char* name : {"a", "b"}) {
    builder.graph().heads.push_back(Operator(&builder, "relu", name, {x}));
    builder.graph().heads.push_back(
        Operator(&builder, "relu", std::string(name) + "1", {y}));
  }
  InOrder(&builder.graph(), &builder.node_workers());
  EXPECT_EQ(WaitsFor(builder.graph(), "a"), std::vector<std::string>());
  EXPECT_EQ(WaitsFor(builder.graph(), "b"), std::vector<std::string>{"a"});
  EXPECT_EQ(WaitsFor(builder.graph(), "b1"), std::vector<std::string>{"a1"});
  for (int node = 0; node < builder.graph().num_nodes(); ++node) {
    EXPECT_EQ(builder.graph().nodes[node].group,
              WorkerGroup(builder.node_workers()[node]));
  }
}

TEST(ControlDeps, ABackwardOperatorHasNoneAndTheNextOneWaitsForIt) {
  for (const char* op : {"_backward_relu", "gather_nd", "scatter_nd"}) {
    GraphBuilder builder;
    const NodeEntry x = Variable(&builder, "x", 0);
    builder.graph().heads = {Operator(&builder, "relu", "a", {x}),
                             Operator(&builder, op, "b", {x}),
                             Operator(&builder, "relu", "c", {x})};
    InOrder(&builder.graph());
    EXPECT_TRUE(WaitsFor(builder.graph(), "b").empty()) << op;
    EXPECT_EQ(WaitsFor(builder.graph(), "c"), (std::vector<std::string>{"a", "b"})) << op;
  }
}

// The dependencies in a graph of two workers whose operator "c" is `op`.
std::map<std::string, std::vector<std::string>> Dependencies(const std::string& op) {
  GraphBuilder builder;
  Node variable;
  variable.name = "x";
  const int x = builder.Add(variable, 0, {{4}}, {0});
  const NodeEntry a = builder.Copy("a", 0, {x, 0});
  const NodeEntry b = builder.Copy("b", 1, a);
  Node node;
  node.op = op;
  node.name = "c";
  node.inputs = {a};
  const int c = builder.Add(node, 0, {{4}}, {0});
  const NodeEntry d = builder.Copy("d", 0, {c, 0});
  Graph graph = std::move(builder.graph());
  graph.heads = {d, b};
  InOrder(&graph);
  std::map<std::string, std::vector<std::string>> found;
  for (const Node& each : graph.nodes) {
    for (int dependency : each.control_deps) {
      found[each.name].push_back(graph.nodes[dependency].name);
    }
  }
  return found;
}

TEST(ControlDeps, ChainTheNodesOfEveryWorker) {
  using Found = std::map<std::string, std::vector<std::string>>;
  // No node on worker 1 comes before b.
  EXPECT_EQ(Dependencies("relu"), (Found{{"c", {"a"}}, {"d", {"c"}}}));
}

TEST(ControlDeps, LeaveOutWhatMxnetTakesForBackwardOperators) {
  using Found = std::map<std::string, std::vector<std::string>>;
  for (const char* op : {"_backward_copy", "gather_nd", "scatter_nd"}) {
    EXPECT_EQ(Dependencies(op), (Found{{"d", {"a", "c"}}})) << op;
  }
}

// In any graph every node comes after the nodes that it reads, and the operators of a
// worker that may have dependencies form a chain.
TEST(ControlDepsRandom, KeepTheGraphAndItsOrder) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const MockGraph mock = RandomGraph(&random);
    const Plan plan = RandomPlan(mock, {2, 2}, &random);
    Partitioned divided =
        PartitionGraph(mock.graph, mock.table, plan, {{}, FetchKind::kMultiFetch});
    std::multiset<std::string> before;
    for (const Node& node : divided.graph.nodes) before.insert(node.name);
    InOrder(&divided.graph, &divided.node_workers);
    std::map<int, int> last;  // of each worker
    for (int number = 0; number < divided.graph.num_nodes(); ++number) {
      const Node& node = divided.graph.nodes[number];
      before.erase(before.find(node.name));
      for (NodeEntry input : node.inputs) ASSERT_LT(input.node, number);
      if (node.is_variable()) continue;
      const auto [found, is_first] = last.emplace(divided.node_workers[number], number);
      if (!is_first) {
        ASSERT_EQ(node.control_deps, std::vector<int>{found->second});
      }
      found->second = number;
    }
    EXPECT_TRUE(before.empty());
  }
}

}  // namespace
}  // namespace tofu
