#include "graph/lives/memory_order.h"

#include <gtest/gtest.h>

#include <random>

#include "support/mock_graph.h"

namespace tofu {
namespace {

// Node i's place in the order; checks that every node has exactly one.
std::vector<int> Places(const std::vector<int>& order) {
  std::vector<int> places(order.size(), -1);
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(places.at(order[i]), -1) << "node " << order[i] << " twice";
    places.at(order[i]) = static_cast<int>(i);
  }
  return places;
}

TEST(MemoryOrder, AddsUpTermsAsTheyAreComputed) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4, 4});
  std::vector<NodeEntry> terms;
  for (int i = 0; i < 4; ++i) terms.push_back(mock.Elementwise("mul", {x, x}));
  NodeEntry sum = terms[0];
  std::vector<NodeEntry> sums;
  for (int i = 1; i < 4; ++i) {
    sum = mock.Elementwise("add", {sum, terms[i]});
    sums.push_back(sum);
  }
  mock.Head(sum, "output");
  const std::vector<int> places = Places(MemoryOrder(mock.graph));
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(places[sums[i - 1].node], places[terms[i].node] + 1) << "term " << i;
  }
}

TEST(MemoryOrder, LeavesWhatTakesMemoryWhereItIs) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4});
  const NodeEntry first = mock.Elementwise("mul", {x, x});
  const NodeEntry second = mock.Elementwise("add", {x, x});
  const NodeEntry wide = mock.BroadcastRows(first, 8);
  mock.Head(wide, "output");
  mock.Head(second, "output");
  const std::vector<int> places = Places(MemoryOrder(mock.graph));
  EXPECT_LT(places[second.node], places[wide.node]);
}

TEST(MemoryOrder, TakesWhatNeedsLittleBesideTheLargestTensor) {
  for (const int64_t rows : {1023, 1024}) {
    MockGraph mock;
    const NodeEntry x = mock.Variable("x", {4});
    const NodeEntry first = mock.Elementwise("mul", {x, x});
    const NodeEntry wide = mock.BroadcastRows(first, rows);
    const NodeEntry small = mock.Elementwise("add", {first, first});
    mock.Head(first, "output");
    mock.Head(wide, "output");
    mock.Head(small, "output");
    const std::vector<int> places = Places(MemoryOrder(mock.graph));
    EXPECT_EQ(places[small.node] < places[wide.node], rows == 1024) << rows;
  }
}

TEST(MemoryOrder, IsTopologicalOnRandomGraphs) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const MockGraph mock = RandomGraph(&random);
    const std::vector<int> order = MemoryOrder(mock.graph);
    EXPECT_EQ(order, MemoryOrder(mock.graph)) << "seed " << seed;
    const std::vector<int> places = Places(order);
    for (int node = 0; node < mock.graph.num_nodes(); ++node) {
      for (NodeEntry input : mock.graph.nodes[node].inputs) {
        ASSERT_LT(places[input.node], places[node]) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace tofu
