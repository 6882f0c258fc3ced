#include "fetch/fetch_nodes.h"

namespace tofu {

bool IsDirect(const Node& node) { return node.attrs.count(kDirectAttr) > 0; }

NodeEntry Acknowledgement(const Graph& graph, int fetch) {
  return {fetch, graph.nodes[fetch].num_outputs - 1};
}

bool IsRegion(const Graph& graph, NodeEntry entry) {
  const Node& node = graph.nodes[entry.node];
  return node.op == kMultiFetchOp && entry.index + 1 < node.num_outputs;
}

FetchBundle BundleOf(const Node& fetch) {
  const auto handles = fetch.attrs.find(kHandlesAttr);
  return ReadBundle(fetch.attrs.at(kSpecAttr),
                    handles == fetch.attrs.end() ? "" : handles->second);
}

}  // namespace tofu
