#include "passes/schedule/relay_regions.h"

#include <utility>
#include <vector>

#include "passes/partition/emit_multifetch.h"
#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

void Append(const Graph& from, int number, Node node, Graph* graph) {
  for (int i = 0; i < node.num_outputs; ++i) {
    graph->shapes.push_back(from.shape({number, i}));
    graph->dtypes.push_back(from.dtype({number, i}));
  }
  graph->nodes.push_back(std::move(node));
}

Node RelayOf(const Node& fetch, int number) {
  Node relay;
  relay.op = kCopyOp;
  relay.name = fetch.name + "/relay";
  relay.inputs = {{number, 0}};
  relay.attrs[kContextAttr] = fetch.attrs.at(kContextAttr);
  return relay;
}

}  // namespace

void RelayRegions(Graph* graph) {
  Graph result;
  result.nodes.reserve(graph->nodes.size());
  result.shapes.reserve(graph->shapes.size());
  std::vector<int> numbers(graph->nodes.size());  // where a node's first output is read
  std::vector<int> fetches(graph->nodes.size(), -1);
  const auto moved = [&](NodeEntry entry) {
    const int fetch = fetches[entry.node];
    return NodeEntry{entry.index == 0 || fetch < 0 ? numbers[entry.node] : fetch,
                     entry.index};
  };
  for (int number = 0; number < graph->num_nodes(); ++number) {
    Node node = std::move(graph->nodes[number]);
    for (NodeEntry& input : node.inputs) input = moved(input);
    numbers[number] = result.num_nodes();
    if (node.op != kMultiFetchOp) {
      Append(*graph, number, std::move(node), &result);
      continue;
    }
    fetches[number] = numbers[number]++;
    Node relay = RelayOf(node, fetches[number]);
    Append(*graph, number, std::move(node), &result);
    Append(*graph, number, std::move(relay), &result);
  }
  for (NodeEntry head : graph->heads) result.heads.push_back(moved(head));
  result.head_roles = std::move(graph->head_roles);
  IndexEntries(&result);
  *graph = std::move(result);
}

bool IsRelay(const Graph& graph, const Node& node) {
  return node.op == kCopyOp && graph.nodes[node.inputs[0].node].op == kMultiFetchOp;
}

}  // namespace tofu
