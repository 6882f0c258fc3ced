#include "passes/schedule/relay_regions.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fetch/node_names.h"
#include "passes/partition/graph_builder.h"
#include "passes/partition/retire.h"
#include "passes/schedule/control_deps.h"
#include "passes/schedule/order_nodes.h"

namespace tofu {
namespace {

// Two workers that both fetch both tiles and compute with them; nodes are grouped by
// worker, as partition emits them.
Graph Exchange() {
  GraphBuilder builder;
  std::vector<NodeEntry> tiles;
  std::vector<NodeEntry> handles;
  for (int w = 0; w < 2; ++w) {
    Node variable;
    variable.name = "x@" + std::to_string(w);
    const int x = builder.Add(variable, w, {{4}}, {0});
    tiles.push_back(builder.Copy("tile@" + std::to_string(w), w, {x, 0}));
  }
  for (int w = 0; w < 2; ++w) {
    const int other = 1 - w;
    Node publish;
    publish.op = kPublishOp;
    publish.name = "publish@" + std::to_string(other);
    publish.inputs = {tiles[other]};
    const NodeEntry handle = {builder.Add(publish, other, {{1}}, {6}), 0};
    Node fetch;
    fetch.op = kMultiFetchOp;
    fetch.name = "fetch@" + std::to_string(w);
    fetch.num_outputs = 2;
    fetch.inputs = {handle, tiles[w]};
    fetch.attrs[kSpecAttr] = "";
    const int region = builder.Add(fetch, w, {{8}, {1}}, {0, 6});
    const NodeEntry made = builder.Copy("conv@" + std::to_string(w), w, {region, 0});
    builder.graph().heads.push_back(made);
  }
  Retire(&builder);
  IndexEntries(&builder.graph());
  return std::move(builder.graph());
}

std::vector<std::string> NamesOn(const Graph& graph, const std::string& worker) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    if (!node.is_variable() && node.group == worker) {
      names.push_back(node.name);
    }
  }
  return names;
}

TEST(RelayRegions, ReadersComeBehindARelayAndAcknowledgementsDoNot) {
  Graph graph = Exchange();
  const std::vector<NodeEntry> heads = graph.heads;
  RelayRegions(&graph);
  ASSERT_EQ(graph.heads.size(), heads.size());
  int num_relays = 0;
  for (const Node& node : graph.nodes) {
    for (NodeEntry input : node.inputs) {
      const Node& source = graph.nodes[input.node];
      if (source.op != kMultiFetchOp) {
        EXPECT_FALSE(IsRelay(graph, node)) << node.name;
        continue;
      }
      if (node.op == kRetireOp) {
        EXPECT_EQ(input.index, 1) << node.name;
        continue;
      }
      EXPECT_EQ(node.op, "_copy");
      EXPECT_TRUE(IsRelay(graph, node));
      EXPECT_EQ(node.name, source.name + "/relay");
      EXPECT_EQ(input.index, 0);
      EXPECT_EQ(node.group, source.group);
      ++num_relays;
    }
  }
  EXPECT_EQ(num_relays, 2);
}

TEST(RelayRegions, KeepsShapesAndTypesOfEveryEntry) {
  Graph graph = Exchange();
  RelayRegions(&graph);
  for (int number = 0; number < graph.num_nodes(); ++number) {
    const Node& node = graph.nodes[number];
    if (node.op == kMultiFetchOp) {
      EXPECT_EQ(graph.shape({number, 1}), Shape({1}));
      EXPECT_EQ(graph.dtype({number, 1}), 6);
    }
    if (node.name.rfind("fetch", 0) != 0) continue;
    EXPECT_EQ(graph.shape({number, 0}), Shape({8})) << node.name;
    EXPECT_EQ(graph.dtype({number, 0}), 0) << node.name;
  }
}

TEST(RelayRegions, RelaysWhatIsAHead) {
  Graph graph = Exchange();
  const int fetch = graph.nodes[graph.heads.back().node].inputs[0].node;
  graph.heads.push_back({fetch, 0});
  RelayRegions(&graph);
  const Node& head = graph.nodes[graph.heads.back().node];
  EXPECT_EQ(head.op, "_copy");
  EXPECT_EQ(head.name, "fetch@1/relay");
}

TEST(ControlDeps, WorkersThatExchangeTilesRetireTheirsBeforeTheyGoOn) {
  Graph graph = Exchange();
  RelayRegions(&graph);
  OrderNodes(&graph);
  AddControlDeps(&graph);
  for (const std::string w : {"0", "1"}) {
    const std::vector<std::string> names = NamesOn(graph, "worker" + w);
    ASSERT_EQ(names.size(), 6u);
    EXPECT_EQ(names[0], "tile@" + w);
    EXPECT_EQ(names[1], "publish@" + w);
    EXPECT_EQ(names.back(), "conv@" + w);
  }
}

}  // namespace
}  // namespace tofu
