#include "fetch/fetch_nodes.h"

#include <gtest/gtest.h>

#include <string>

namespace tofu {
namespace {

constexpr char kOneRemote[] = "dtype=0 shape=2 remote=1 sources=4; pieces=0@1>0:2";

// A fetch of two regions, each of a piece of one remote tile.
Graph WithFetch() {
  Graph graph;
  Node fetch;
  fetch.op = kMultiFetchOp;
  fetch.num_outputs = 3;
  fetch.attrs[kSpecAttr] = std::string(kOneRemote) + "|" + kOneRemote;
  graph.nodes.push_back(fetch);
  return graph;
}

TEST(FetchNodes, TheLastOutputAcknowledgesAndTheOthersAreRegions) {
  Graph graph = WithFetch();
  EXPECT_EQ(Acknowledgement(graph, 0).index, 2);
  EXPECT_TRUE(IsRegion(graph, {0, 0}));
  EXPECT_TRUE(IsRegion(graph, {0, 1}));
  EXPECT_FALSE(IsRegion(graph, {0, 2}));
  graph.nodes[0].op = "add_n";
  EXPECT_FALSE(IsRegion(graph, {0, 0}));
}

TEST(FetchNodes, AnAttributeMarksThoseThatReadDirectly) {
  Graph graph = WithFetch();
  EXPECT_FALSE(IsDirect(graph.nodes[0]));
  graph.nodes[0].attrs[kDirectAttr] = "1";
  EXPECT_TRUE(IsDirect(graph.nodes[0]));
}

TEST(FetchNodes, ABundleHasAHandlePerRemoteTileUnlessTheNodeSaysWhere) {
  Graph graph = WithFetch();
  const FetchBundle separate = BundleOf(graph.nodes[0]);
  EXPECT_EQ(separate.specs.size(), 2u);
  EXPECT_EQ(separate.num_handles(), 2);
  graph.nodes[0].attrs[kHandlesAttr] = WriteHandles({{0, 0, 3}, {0, 1, 3}});
  const FetchBundle joined = BundleOf(graph.nodes[0]);
  EXPECT_EQ(joined.num_handles(), 1);
  EXPECT_EQ(joined.remote[1].index, 1);
  EXPECT_EQ(joined.remote[1].owner, 3);
}

}  // namespace
}  // namespace tofu
