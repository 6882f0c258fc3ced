#include "passes/schedule/order_heads.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

// A backward half on one worker. Its heads stand in the order of the layers; the
// operators of the last layer come first.
class BackwardHalf {
 public:
  BackwardHalf() {
    phases_.backward.emplace();
    graph().dtypes.push_back(0);
    graph().shapes.push_back({1});
    AddNode("", "head_gradient", {}, 1);
  }

  // Returns its first output. `sizes`: the elements of each output.
  NodeEntry Operator(const std::string& name, const std::vector<NodeEntry>& inputs,
                     const std::vector<int64_t>& sizes) {
    for (int64_t size : sizes) {
      graph().dtypes.push_back(0);
      graph().shapes.push_back({size});
    }
    return AddNode("op", name, inputs, static_cast<int>(sizes.size()));
  }

  void Head(NodeEntry entry, const std::string& role) {
    PartitionedHead head;
    head.role = role;
    head.tiles.push_back({static_cast<int>(graph().heads.size()), 0, {}});
    phases_.backward->heads.push_back(head);
    graph().heads.push_back(entry);
  }

  // The names of the heads' nodes, by the numbers that the roles have.
  std::vector<std::string> NamesAfterOrdering() {
    IndexEntries(&graph());
    OrderHeads(true, &phases_);
    std::vector<std::string> names;
    for (const PartitionedHead& head : phases_.backward->heads) {
      names.push_back(head.role + " " +
                      graph().nodes[graph().heads[head.tiles[0].head].node].name);
    }
    return names;
  }

  std::vector<int> HeadNodes() {
    std::vector<int> nodes;
    for (NodeEntry head : graph().heads) nodes.push_back(head.node);
    return nodes;
  }

 private:
  Graph& graph() { return phases_.backward->graph; }

  NodeEntry AddNode(const std::string& op, const std::string& name,
                    const std::vector<NodeEntry>& inputs, int num_outputs) {
    Node node{Name(op), name, {}, inputs, {}, num_outputs, WorkerGroup(0)};
    graph().nodes.push_back(std::move(node));
    return {graph().num_nodes() - 1, 0};
  }

  Phases phases_;
};

// Whether the heads of two layers are put in order. Each layer's operator makes the
// gradient of its input, and a term of the sum from which the head is made.
bool AreOrdered(const std::string& kind, int64_t input, int64_t term, int64_t head) {
  BackwardHalf half;
  const NodeEntry second = half.Operator("second", {{0, 0}}, {input, term});
  const NodeEntry of_second = half.Operator("sum of second", {{second.node, 1}}, {head});
  const NodeEntry first = half.Operator("first", {second}, {input, term});
  const NodeEntry of_first = half.Operator("sum of first", {{first.node, 1}}, {head});
  half.Head(of_first, kind + ":first");
  half.Head(of_second, kind + ":second");
  EXPECT_EQ(half.NamesAfterOrdering(),
            (std::vector<std::string>{kind + ":first sum of first",
                                      kind + ":second sum of second"}));
  return half.HeadNodes() == std::vector<int>{of_second.node, of_first.node};
}

TEST(OrderHeads, SumsAreReducedBeforeTheNextLayer) {
  EXPECT_TRUE(AreOrdered("gradient", 1, 100, 10));
}

// The terms are small beside the gradients of inputs.
TEST(OrderHeads, HeadsStayWhereTheOrderSavesLittle) {
  EXPECT_FALSE(AreOrdered("gradient", 100, 20, 2));
}

// New gradients take more memory than their terms, and new weights none of their own.
TEST(OrderHeads, WhatIsWrittenInPlaceTakesNoMemory) {
  EXPECT_FALSE(AreOrdered("gradient", 1, 100, 300));
  EXPECT_TRUE(AreOrdered("update", 1, 100, 300));
}

// The second layer's gradient is larger than the tensors that it is made from.
TEST(OrderHeads, HeadsStayWhereThatTakesLess) {
  BackwardHalf half;
  const NodeEntry second = half.Operator("second", {{0, 0}}, {10});
  const NodeEntry of_second = half.Operator("large", {second}, {100});
  const NodeEntry third = half.Operator("temporary", {second}, {100});
  const NodeEntry of_first = half.Operator("small", {third}, {10});
  half.Head(of_first, "gradient:first");
  half.Head(of_second, "gradient:second");
  EXPECT_EQ(half.NamesAfterOrdering(),
            (std::vector<std::string>{"gradient:first small", "gradient:second large"}));
  EXPECT_EQ(half.HeadNodes(), (std::vector<int>{of_first.node, of_second.node}));
}

}  // namespace
}  // namespace tofu
