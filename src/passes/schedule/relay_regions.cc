#include "passes/schedule/relay_regions.h"

#include <string>
#include <utility>
#include <vector>

#include "fetch/fetch_nodes.h"
#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

// Adds a node whose outputs have the shapes and dtypes of entries of `from`, from `first`
// on.
void Append(const Graph& from, NodeEntry first, Node node, Graph* graph) {
  for (int i = 0; i < node.num_outputs; ++i) {
    graph->shapes.push_back(from.shape({first.node, first.index + i}));
    graph->dtypes.push_back(from.dtype({first.node, first.index + i}));
  }
  graph->nodes.push_back(std::move(node));
}

Node RelayOf(const Node& fetch, NodeEntry region) {
  Node relay;
  relay.op = kCopyOp;
  relay.name =
      fetch.name + "/relay" + (region.index > 0 ? std::to_string(region.index) : "");
  relay.inputs = {region};
  relay.group = fetch.group;
  return relay;
}

// [node]: whether another worker waits for its acknowledgement.
std::vector<bool> Acknowledging(const Graph& graph) {
  std::vector<bool> acknowledging(graph.nodes.size(), false);
  for (const Node& node : graph.nodes) {
    if (IsDirect(node)) continue;  // it needs no copy
    for (NodeEntry input : node.inputs) {
      const Node& source = graph.nodes[input.node];
      if (source.op != kMultiFetchOp || IsRegion(graph, input)) continue;
      if (source.group != node.group) {
        acknowledging[input.node] = true;
      }
    }
  }
  return acknowledging;
}

}  // namespace

void RelayRegions(Graph* graph) {
  Graph result;
  result.nodes.reserve(graph->nodes.size());
  result.shapes.reserve(graph->shapes.size());
  const std::vector<bool> is_relayed = Acknowledging(*graph);
  std::vector<NodeEntry> moved(graph->num_entries());  // [entry]: what readers read
  for (int number = 0; number < graph->num_nodes(); ++number) {
    Node node = std::move(graph->nodes[number]);
    for (NodeEntry& input : node.inputs) input = moved[graph->entry_id(input)];
    const int added = result.num_nodes();
    std::vector<Node> relays;
    for (int i = 0; i < node.num_outputs; ++i) {
      NodeEntry& entry = moved[graph->entry_id({number, i})];
      entry = {added, i};
      if (!is_relayed[number] || i + 1 == node.num_outputs) continue;
      relays.push_back(RelayOf(node, entry));
      entry = {added + static_cast<int>(relays.size()), 0};
    }
    Append(*graph, {number, 0}, std::move(node), &result);
    for (size_t i = 0; i < relays.size(); ++i) {
      Append(*graph, {number, static_cast<int>(i)}, std::move(relays[i]), &result);
    }
  }
  for (NodeEntry head : graph->heads) {
    result.heads.push_back(moved[graph->entry_id(head)]);
  }
  result.head_roles = std::move(graph->head_roles);
  IndexEntries(&result);
  *graph = std::move(result);
}

bool IsRelay(const Graph& graph, const Node& node) {
  return node.op == kCopyOp && graph.nodes[node.inputs[0].node].op == kMultiFetchOp;
}

}  // namespace tofu
