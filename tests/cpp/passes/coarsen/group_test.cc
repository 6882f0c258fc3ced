#include "passes/coarsen/group.h"

#include <gtest/gtest.h>

#include "graph/head_roles.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

int NodeNamed(const Graph& graph, const std::string& name) {
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (graph.nodes[node].name == name) return node;
  }
  ADD_FAILURE() << "no node " << name;
  return 0;
}

// A graph, its groups, and questions by name.
struct Grouped {
  explicit Grouped(ExampleGraph example)
      : graph(example.graph()), groups(GroupForwardBackward(graph, example.table())) {}

  std::string OpGroup(const std::string& name) const {
    const int group = groups.op_group[NodeNamed(graph, name)];
    return group < 0 ? "" : graph.nodes[group].name;
  }
  std::string TensorGroup(const std::string& name) const {
    return EntryName(groups.tensor_group[graph.first_entry[NodeNamed(graph, name)]]);
  }
  std::string NodeTensor(const std::string& name) const {
    return EntryName(groups.node_tensor[NodeNamed(graph, name)]);
  }
  std::string EntryName(int entry) const {
    for (int node = 0; node < graph.num_nodes(); ++node) {
      if (graph.first_entry[node] == entry) return graph.nodes[node].name;
    }
    return "";
  }

  Graph graph;
  Groups groups;
};

TEST(Group, BackwardOperatorsJoinTheirForwardOperator) {
  const Grouped g(Mlp(8, 8, 2));
  EXPECT_EQ(g.OpGroup("fc1"), "fc1");
  EXPECT_EQ(g.OpGroup("fc1_dw"), "fc1");
  EXPECT_EQ(g.OpGroup("fc1_dx"), "fc1");
  EXPECT_EQ(g.OpGroup("fc0_dz"), "fc0_act");
}

TEST(Group, GradientsJoinTheirTensor) {
  const Grouped g(Mlp(8, 8, 2));
  EXPECT_EQ(g.TensorGroup("fc0_weight"), "fc0_weight");
  EXPECT_EQ(g.TensorGroup("fc0_dw"), "fc0_weight");
  EXPECT_EQ(g.TensorGroup("fc1_dx"), "fc0_act") << "the gradient of what fc1 reads";
  EXPECT_EQ(g.TensorGroup("fc1_dz"), "fc1_biased");
  EXPECT_EQ(g.TensorGroup("head_grad0"), "fc1_act");
}

TEST(Group, ASumOfGradientsBelongsToTheTensor) {
  const Grouped g(UnrolledRnn(4, 4, 3));
  EXPECT_EQ(g.NodeTensor("dwh"), "wh");
  EXPECT_EQ(g.OpGroup("dwh"), "");
  EXPECT_EQ(g.TensorGroup("t1_dwh"), "wh") << "a partial gradient";
  EXPECT_EQ(g.OpGroup("t1_dwh"), "t1_mh");
}

TEST(Group, TheUpdateAndTheStateBelongToTheWeight) {
  ExampleGraph example;
  const NodeEntry w = example.Variable("w", {4, 4}, "parameter");
  const NodeEntry momentum = example.Variable("m", {4, 4}, "state:w");
  const NodeEntry y = example.Elementwise("y", {w});
  const NodeEntry gradient = example.Elementwise("dy", {y, w}, "_backward_relu");
  example.After(gradient, y);
  const NodeEntry scaled = example.Elementwise("scaled", {gradient}, "scale");
  example.Head(y, "output");
  example.Head(gradient, "gradient:w");
  example.Head(example.Elementwise("new_w", {w, scaled, momentum}, "sgd_mom_update"),
               "update:w");
  const Grouped g(example);
  EXPECT_EQ(g.NodeTensor("new_w"), "w");
  EXPECT_EQ(g.NodeTensor("scaled"), "w") << "only the update needs it";
  EXPECT_EQ(g.TensorGroup("m"), "w");
  EXPECT_EQ(g.OpGroup("dy"), "y");
}

TEST(Group, ABackwardOperatorWithoutControlDependencyContinuesItsGroup) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 4}, "data");
  const NodeEntry w = example.Variable("w", {4, 4}, "parameter");
  const NodeEntry y = example.MatMul("y", x, w);
  const NodeEntry head = example.Variable("head_grad0", {4, 4}, "head_grad:0");
  const NodeEntry zeros = example.Opaque("zeros", {}, {4, 4});
  const NodeEntry first = example.Elementwise("first", {head, zeros}, "add");
  example.After(first, y);
  const NodeEntry second = example.MatMul("second", x, first, true, false);
  example.Head(y, "output");
  example.Head(second, "gradient:w");
  const Grouped g(example);
  EXPECT_EQ(g.OpGroup("second"), "y");
  EXPECT_EQ(g.OpGroup("zeros"), "y") << "feeds only that group";
}

// The gradient that reaches an operator's group belongs to its output of that shape,
// unless there are two such outputs.
TEST(Group, AGradientOfOneOfTwoEqualOutputsBelongsToNeither) {
  for (const int outputs : {1, 2}) {
    ExampleGraph example;
    const NodeEntry x = example.Variable("x", {4, 4}, "data");
    const NodeEntry y = example.Elementwise("y", {x}, "pair", outputs);
    const NodeEntry z = example.Elementwise("z", {x}, "tanh");
    for (int i = 0; i < outputs; ++i) example.Head({y.node, i}, "output");
    example.Head(z, "output");
    const NodeEntry dz = example.Elementwise("dz", {x}, "_backward_tanh");
    example.After(dz, z);
    const NodeEntry dy = example.Elementwise("dy", {dz}, "_backward_pair");
    example.After(dy, y);
    example.Head(dy, "gradient:x");
    const Graph graph = example.graph();
    const Groups groups = GroupForwardBackward(graph, example.table());
    EXPECT_EQ(groups.tensor_group[graph.entry_id(dz)],
              outputs == 1 ? graph.entry_id(y) : -1);
  }
}

TEST(Group, AGradientOfTheOutputThatIsReadBelongsToIt) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 4}, "data");
  const NodeEntry y = example.Elementwise("y", {x}, "pair", 2);
  const NodeEntry z = example.Elementwise("z", {{y.node, 1}}, "tanh");
  example.Head(y, "output");
  example.Head(z, "output");
  const NodeEntry dz = example.Elementwise("dz", {z}, "_backward_tanh");
  example.After(dz, z);
  const NodeEntry dy = example.Elementwise("dy", {dz}, "_backward_pair");
  example.After(dy, y);
  example.Head(dy, "gradient:x");
  const Graph graph = example.graph();
  const Groups groups = GroupForwardBackward(graph, example.table());
  EXPECT_EQ(groups.tensor_group[graph.entry_id(dz)], graph.entry_id({y.node, 1}));
}

TEST(Group, RolesNameWhatFollowsTheirPrefix) {
  EXPECT_EQ(RoleTarget("gradient:w", "gradient:"), "w");
  EXPECT_EQ(RoleTarget("gradients:w", "gradient:"), "");
  EXPECT_EQ(RoleTarget("update:w", "gradient:"), "");
}

TEST(Group, OnlyVariablesAreFoundByName) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4});
  example.Elementwise("y", {x});
  EXPECT_EQ(FindVariable(example.graph(), "x"), 0);
  EXPECT_EQ(FindVariable(example.graph(), "y"), -1);
}

TEST(Group, WithoutRolesAllIsForward) {
  ExampleGraph example = Residual(4, 4, 1);
  Graph graph = example.graph();
  graph.head_roles.clear();
  const Groups groups = GroupForwardBackward(graph, example.table());
  for (int node = 0; node < graph.num_nodes(); ++node) {
    EXPECT_TRUE(groups.forward[node]) << graph.nodes[node].name;
  }
}

}  // namespace
}  // namespace tofu
