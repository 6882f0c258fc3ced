#include "passes/memory/operator_uses.h"

#include <gtest/gtest.h>

#include "fetch/node_names.h"
#include "passes/partition/graph_builder.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

NodeEntry Variable(GraphBuilder* builder, int worker, const Shape& shape, int dtype = 0) {
  Node variable;
  variable.name = "x";
  return {builder->Add(std::move(variable), worker, {shape}, {dtype}), 0};
}

NodeEntry Operator(GraphBuilder* builder, const std::string& op,
                   const std::vector<NodeEntry>& inputs,
                   const std::map<std::string, std::string>& attrs = {}) {
  Node node;
  node.op = op;
  node.name = op;
  node.inputs = inputs;
  node.attrs = attrs;
  const Shape shape = builder->shape(inputs[0]);
  return {builder->Add(std::move(node), builder->worker(inputs[0]), {shape}, {0}), 0};
}

OperatorUses UsesOf(GraphBuilder& builder) { return FindOperatorUses(builder.graph()); }

TEST(OperatorUses, EqualCallsAreOneUseOtherAttributesOrInputsAnother) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, 0, {4});
  Operator(&builder, "a", {x}, {{"axis", "0"}, {"__mine__", "1"}});
  Operator(&builder, "a", {x}, {{"axis", "0"}, {"__mine__", "2"}});
  Operator(&builder, "a", {x}, {{"axis", "1"}});
  Operator(&builder, "a", {x, x}, {{"axis", "0"}});
  Operator(&builder, "b", {x}, {{"axis", "0"}});
  const OperatorUses uses = UsesOf(builder);
  EXPECT_EQ(uses.node_uses, (std::vector<int>{-1, 0, 0, 1, 2, 3}));
  EXPECT_EQ(uses.nodes, (std::vector<int>{1, 3, 4, 5}));
}

TEST(OperatorUses, OurOwnOperatorsHaveNone) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, 0, {4});
  Operator(&builder, kMultiFetchOp, {x});
  Operator(&builder, "a", {x});
  const OperatorUses uses = UsesOf(builder);
  EXPECT_EQ(uses.node_uses, (std::vector<int>{-1, -1, 0}));
  EXPECT_EQ(uses.nodes, (std::vector<int>{2}));
}

TEST(OperatorUses, NamesAndValuesDoNotRunIntoEachOther) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, 0, {4});
  Operator(&builder, "a", {x}, {{"b", "c\n1 d"}});
  Operator(&builder, "a", {x}, {{"b", "c"}, {"d", ""}});
  EXPECT_EQ(UsesOf(builder).nodes.size(), 2u);
}

TEST(OperatorUses, TheLargestCallStandsForItsUse) {
  GraphBuilder builder;
  Operator(&builder, "a", {Variable(&builder, 0, {4})});
  const NodeEntry largest = Operator(&builder, "a", {Variable(&builder, 0, {9}, 1)});
  Operator(&builder, "a", {Variable(&builder, 0, {2})});
  EXPECT_EQ(UsesOf(builder).nodes, (std::vector<int>{largest.node}));
}

TEST(OperatorUses, InputsAndOutputsCountForTheSize) {
  MockGraph mock(0);
  const NodeEntry small = mock.Variable("small", {2});
  const NodeEntry large = mock.Variable("large", {8});
  mock.Elementwise("mul", {small, small});
  mock.Elementwise("mul", {large, large});
  mock.Elementwise("mul", {small});
  mock.Elementwise("add", {small, small});
  mock.graph.nodes[2].group = "worker1";
  mock.graph.nodes[5].attrs["k"] = "v";
  const OperatorUses uses = FindOperatorUses(mock.graph);
  EXPECT_EQ(uses.node_uses, (std::vector<int>{-1, -1, 0, 0, 1, 2}));
  EXPECT_EQ(uses.nodes, (std::vector<int>{3, 4, 5}));
}

TEST(OperatorUses, TellAttributesOfOperatorsFromThoseOfNodes) {
  EXPECT_TRUE(IsOperatorAttr("num_hidden"));
  EXPECT_TRUE(IsOperatorAttr("_private"));
  EXPECT_FALSE(IsOperatorAttr("__ctx_group__"));
}

}  // namespace
}  // namespace tofu
