#include "support/multifetch_checks.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "fetch/node_names.h"
#include "mxnet/dialect/dialect.h"

namespace tofu {
namespace {

using Entry = std::pair<int, int>;

Entry Of(NodeEntry entry) { return {entry.node, entry.index}; }

Name WorkerOf(const Graph& graph, int node) { return graph.nodes[node].group; }

// The fetches that read each publication.
std::map<int, std::set<int>> Readers(const Graph& graph) {
  std::map<int, std::set<int>> readers;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (graph.nodes[node].op == kPublishOp) readers[node];
    if (graph.nodes[node].op != kMultiFetchOp) continue;
    for (NodeEntry input : graph.nodes[node].inputs) {
      if (graph.nodes[input.node].op == kPublishOp) readers[input.node].insert(node);
    }
  }
  return readers;
}

// The publications that a node reads.
std::vector<int> PublicationsOf(const Graph& graph, const Node& node) {
  std::vector<int> publications;
  for (NodeEntry input : node.inputs) {
    if (graph.nodes[input.node].op == kPublishOp) publications.push_back(input.node);
  }
  return publications;
}

}  // namespace

void ExpectTilesRetired(const Graph& graph) {
  std::set<Entry> published;
  std::map<int, std::set<int>> readers = Readers(graph);
  for (const auto& [publication, fetches] : readers) {
    for (NodeEntry tile : graph.nodes[publication].inputs) {
      const std::string& name = graph.nodes[publication].name;
      EXPECT_TRUE(published.insert(Of(tile)).second) << name;
      EXPECT_EQ(WorkerOf(graph, publication), WorkerOf(graph, tile.node)) << name;
    }
  }
  for (NodeEntry head : graph.heads) {
    const Node& n = graph.nodes[head.node];
    if (n.op != kRetireOp) continue;
    std::set<Entry> expected;
    for (int publication : PublicationsOf(graph, n)) {
      ASSERT_EQ(readers.count(publication), 1u) << n.name;
      EXPECT_EQ(WorkerOf(graph, head.node), WorkerOf(graph, publication)) << n.name;
      expected.insert({publication, 0});
      for (NodeEntry tile : graph.nodes[publication].inputs) expected.insert(Of(tile));
      for (int fetch : readers[publication]) {
        expected.insert({fetch, graph.nodes[fetch].num_outputs - 1});
      }
      readers.erase(publication);
    }
    std::set<Entry> inputs;
    for (NodeEntry input : n.inputs) inputs.insert(Of(input));
    EXPECT_EQ(inputs, expected) << n.name;
  }
  EXPECT_TRUE(readers.empty()) << readers.size() << " publications are not retired";
}

void ExpectReadersBeforeRetirements(const Graph& graph) {
  std::vector<std::set<int>> before(graph.nodes.size());
  for (int node = 0; node < graph.num_nodes(); ++node) {
    for (NodeEntry input : graph.nodes[node].inputs) {
      before[node].insert(input.node);
      before[node].insert(before[input.node].begin(), before[input.node].end());
    }
  }
  std::map<int, std::set<int>> readers = Readers(graph);
  for (NodeEntry head : graph.heads) {
    const Node& n = graph.nodes[head.node];
    if (n.op != kRetireOp) continue;
    std::set<Entry> inputs;
    for (NodeEntry input : n.inputs) inputs.insert(Of(input));
    for (int publication : PublicationsOf(graph, n)) {
      for (NodeEntry tile : graph.nodes[publication].inputs) {
        EXPECT_EQ(inputs.count(Of(tile)), 1u) << n.name;
      }
      for (int fetch : readers[publication]) {
        EXPECT_EQ(before[head.node].count(fetch), 1u)
            << n.name << " does not wait for " << graph.nodes[fetch].name;
      }
      EXPECT_EQ(readers.erase(publication), 1u) << n.name << " retires it again";
    }
  }
  EXPECT_TRUE(readers.empty()) << readers.size() << " publications are not retired";
}

}  // namespace tofu
