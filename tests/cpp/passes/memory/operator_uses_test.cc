#include "passes/memory/operator_uses.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "passes/partition/graph_builder.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

using Json = nlohmann::json;

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

Json UsesOf(GraphBuilder& builder) { return Json::parse(OperatorUses(builder.graph())); }

TEST(OperatorUses, EqualCallsAreOneUseOtherAttributesOrInputsAnother) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, 0, {4});
  Operator(&builder, "a", {x}, {{"axis", "0"}, {"__mine__", "1"}});
  Operator(&builder, "a", {x}, {{"axis", "0"}, {"__mine__", "2"}});
  Operator(&builder, "a", {x}, {{"axis", "1"}});
  Operator(&builder, "a", {x, x}, {{"axis", "0"}});
  Operator(&builder, "b", {x}, {{"axis", "0"}});
  const Json uses = UsesOf(builder);
  EXPECT_EQ(uses["nodes"], (std::vector<int>{-1, 0, 0, 1, 2, 3}));
  EXPECT_EQ(uses["operators"].size(), 4u);
  EXPECT_EQ(uses["operators"][0]["attrs"], (Json{{"axis", "0"}}));
  EXPECT_EQ(uses["operators"][2]["inputs"].size(), 2u);
}

TEST(OperatorUses, NamesAndValuesDoNotRunIntoEachOther) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, 0, {4});
  Operator(&builder, "a", {x}, {{"b", "c\n1 d"}});
  Operator(&builder, "a", {x}, {{"b", "c"}, {"d", ""}});
  EXPECT_EQ(UsesOf(builder)["operators"].size(), 2u);
}

TEST(OperatorUses, TheLargestCallStandsForItsUse) {
  GraphBuilder builder;
  Operator(&builder, "a", {Variable(&builder, 0, {4})});
  Operator(&builder, "a", {Variable(&builder, 0, {9}, 1)});
  Operator(&builder, "a", {Variable(&builder, 0, {2})});
  const Json use = UsesOf(builder)["operators"][0];
  EXPECT_EQ(use["inputs"], Json::parse("[[[9], 1]]"));
  EXPECT_EQ(use["outputs"], Json::parse("[[[9], 0]]"));
}

TEST(OperatorUses, ListsShapesAndThoseThatCrossOnce) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, 0, {4});
  const NodeEntry y = Variable(&builder, 0, {6});
  builder.Copy("a", 1, x);
  builder.Copy("b", 1, x);
  builder.Copy("c", 0, y);
  const Json uses = UsesOf(builder);
  EXPECT_EQ(uses["shapes"], Json::parse("[[4], [6]]"));
  EXPECT_EQ(uses["crossing_shapes"], Json::parse("[[4]]"));
}

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
  const nlohmann::json uses = nlohmann::json::parse(OperatorUses(mock.graph));
  EXPECT_EQ(uses["nodes"], (std::vector<int>{-1, -1, 0, 0, 1, 2}));
  const auto& operators = uses["operators"];
  ASSERT_EQ(operators.size(), 3u);
  EXPECT_EQ(operators[0]["op"], "mul");
  EXPECT_EQ(operators[0]["attrs"].count("__ctx_group__"), 0u);
  EXPECT_EQ(operators[0]["inputs"].dump(), "[[[8],0],[[8],0]]");
  EXPECT_EQ(operators[0]["outputs"].dump(), "[[[8],0]]");
  EXPECT_EQ(operators[1]["inputs"].dump(), "[[[2],0]]");
  EXPECT_EQ(operators[2]["attrs"]["k"], "v");
  EXPECT_EQ(uses["shapes"].dump(), "[[2],[8]]");
  EXPECT_EQ(uses["crossing_shapes"].dump(), "[[2]]");
}

}  // namespace
}  // namespace tofu
