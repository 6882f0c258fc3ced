#include "passes/memory/bound_graph.h"

#include <gtest/gtest.h>

#include "fetch/node_names.h"
#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

std::vector<std::string> Names(const BoundGraph& bound) {
  std::vector<std::string> names;
  for (const Node& node : bound.graph.nodes) names.push_back(node.name);
  return names;
}

NodeEntry Variable(GraphBuilder* builder, const std::string& name, int worker,
                   int dtype = 0) {
  Node variable;
  variable.name = name;
  return {builder->Add(std::move(variable), worker, {{4}}, {dtype}), 0};
}

BoundGraph Bound(GraphBuilder* builder, const std::vector<NodeEntry>& heads) {
  builder->graph().heads = heads;
  return OrderAsBound(builder->graph(), builder->node_workers());
}

TEST(BoundGraph, CopiesATensorOnceToEachWorkerThatReadsIt) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, "x", 0);
  const NodeEntry a = builder.Copy("a", 0, x);
  const NodeEntry b = builder.Copy("b", 1, a);
  const NodeEntry c = builder.Copy("c", 1, a);
  const NodeEntry d = builder.Copy("d", 2, a);
  const BoundGraph bound = Bound(&builder, {c, b, d});
  EXPECT_EQ(Names(bound),
            (std::vector<std::string>{"x", "a", "a_copy", "c", "b", "a_copy", "d"}));
  EXPECT_EQ(bound.workers, (std::vector<int>{0, 0, 1, 1, 1, 2, 2}));
  EXPECT_EQ(bound.sources, (std::vector<int>{0, 1, -1, 3, 2, -1, 4}));
}

TEST(BoundGraph, ANodeThatReadsDirectlyNeedsNoCopy) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, "x", 0);
  const NodeEntry a = builder.Copy("a", 1, x);
  const NodeEntry b = builder.Copy("b", 1, x);
  builder.graph().nodes[a.node].attrs[kDirectAttr] = "1";
  const BoundGraph bound = Bound(&builder, {a, b});
  EXPECT_EQ(Names(bound), (std::vector<std::string>{"x", "a", "x_copy", "b"}));
  EXPECT_EQ(bound.graph.nodes[1].inputs[0].node, 0);
}

TEST(BoundGraph, ACopyHasTheShapeAndDtypeOfWhatItCopies) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, "x", 0, /*dtype=*/6);
  const BoundGraph bound = Bound(&builder, {builder.Copy("a", 1, x)});
  ASSERT_EQ(Names(bound), (std::vector<std::string>{"x", "x_copy", "a"}));
  EXPECT_EQ(bound.graph.nodes[1].op, "_CrossDeviceCopy");
  EXPECT_EQ(bound.graph.shape({1, 0}), (Shape{4}));
  EXPECT_EQ(bound.graph.dtype({1, 0}), 6);
  EXPECT_EQ(bound.graph.nodes[2].inputs[0].node, 1);
}

TEST(BoundGraph, FurtherOutputsAreCopiedByThemselves) {
  GraphBuilder builder;
  Node split;
  split.op = "split";
  split.num_outputs = 2;
  split.inputs = {Variable(&builder, "x", 0)};
  const int node = builder.Add(std::move(split), 0, {{4}, {2}}, {0, 1});
  const NodeEntry both[] = {builder.Copy("a", 1, {node, 0}),
                            builder.Copy("b", 1, {node, 1})};
  const BoundGraph bound = Bound(&builder, {both[1], both[0]});
  ASSERT_EQ(bound.graph.num_nodes(), 6);
  EXPECT_EQ(bound.graph.nodes[2].inputs[0].index, 1);
  EXPECT_EQ(bound.graph.shape({2, 0}), (Shape{2}));
  EXPECT_EQ(bound.graph.dtype({2, 0}), 1);
  EXPECT_EQ(bound.graph.nodes[4].inputs[0].index, 0);
}

TEST(BoundGraph, VisitsInputsInTheirOrderThenControlDependencies) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, "x", 0);
  const NodeEntry a = builder.Copy("a", 0, x);
  const NodeEntry b = builder.Copy("b", 0, x);
  const NodeEntry c = builder.Copy("c", 0, x);
  const NodeEntry sum = builder.Reduce("sum", 0, {c, b}, Reducer::kSum);
  builder.graph().nodes[sum.node].control_deps = {a.node};
  const BoundGraph bound = Bound(&builder, {sum});
  EXPECT_EQ(Names(bound), (std::vector<std::string>{"x", "c", "b", "a", "sum"}));
}

TEST(BoundGraph, LeavesOutWhatNoHeadNeedsAndKeepsTheHeadsOrder) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, "x", 0);
  const NodeEntry a = builder.Copy("a", 0, x);
  builder.Copy("unneeded", 0, x);
  const NodeEntry b = builder.Copy("b", 0, x);
  const BoundGraph bound = Bound(&builder, {b, x, a});
  EXPECT_EQ(Names(bound), (std::vector<std::string>{"x", "b", "a"}));
  std::vector<int> heads;
  for (NodeEntry head : bound.graph.heads) heads.push_back(head.node);
  EXPECT_EQ(heads, (std::vector<int>{1, 0, 2}));
}

}  // namespace
}  // namespace tofu
