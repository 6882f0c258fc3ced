#include "passes/memory/operator_uses.h"

#include <gtest/gtest.h>

#include "support/mock_graph.h"

namespace tofu {
namespace {

TEST(OperatorUses, NameEveryWayOnceByItsLargestNode) {
  MockGraph mock(0);
  const NodeEntry small = mock.Variable("small", {2});
  const NodeEntry large = mock.Variable("large", {8});
  mock.Elementwise("mul", {small, small});
  mock.Elementwise("mul", {large, large});
  mock.Elementwise("mul", {small});
  mock.Elementwise("add", {small, small});
  mock.graph.nodes[2].attrs["__ctx_group__"] = "worker1";
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

TEST(OperatorUses, FindShapesThatCrossBetweenWorkers) {
  MockGraph mock(0);
  const NodeEntry small = mock.Variable("small", {2});
  const NodeEntry large = mock.Variable("large", {8});
  mock.Elementwise("mul", {small, small});
  mock.Elementwise("mul", {large, large});
  EXPECT_TRUE(CrossingShapes(mock.graph).empty());
  mock.graph.nodes[2].attrs["__ctx_group__"] = "worker1";
  EXPECT_EQ(CrossingShapes(mock.graph), (std::set<Shape>{{2}}));
}

}  // namespace
}  // namespace tofu
