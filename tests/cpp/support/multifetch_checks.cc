#include "support/multifetch_checks.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "passes/partition/emit_multifetch.h"

namespace tofu {
namespace {

using Entry = std::pair<int, int>;

Entry Of(NodeEntry entry) { return {entry.node, entry.index}; }

std::string WorkerOf(const Graph& graph, int node) {
  return graph.nodes[node].attrs.at(kContextAttr);
}

}  // namespace

void ExpectTilesRetired(const Graph& graph) {
  std::map<Entry, int> publications;     // by tile
  std::map<int, std::set<Entry>> reads;  // by publication: what its retirement must read
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& n = graph.nodes[node];
    if (n.op == kPublishOp) {
      EXPECT_TRUE(publications.emplace(Of(n.inputs[0]), node).second) << n.name;
      EXPECT_EQ(WorkerOf(graph, node), WorkerOf(graph, n.inputs[0].node)) << n.name;
      reads[node] = {Of(n.inputs[0]), {node, 0}};
    }
    if (n.op != kMultiFetchOp) continue;
    for (NodeEntry input : n.inputs) {
      if (graph.nodes[input.node].op == kPublishOp) reads[input.node].insert({node, 1});
    }
  }
  for (NodeEntry head : graph.heads) {
    const Node& n = graph.nodes[head.node];
    if (n.op != kRetireOp) continue;
    const int publication = n.inputs[1].node;
    ASSERT_EQ(reads.count(publication), 1u) << n.name;
    EXPECT_EQ(WorkerOf(graph, head.node), WorkerOf(graph, publication)) << n.name;
    std::set<Entry> found;
    for (NodeEntry input : n.inputs) found.insert(Of(input));
    EXPECT_EQ(found, reads[publication]) << n.name;
    reads.erase(publication);
  }
  EXPECT_TRUE(reads.empty()) << reads.size() << " tiles are not retired";
}

}  // namespace tofu
