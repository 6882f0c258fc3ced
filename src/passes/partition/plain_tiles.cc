#include "passes/partition/plain_tiles.h"

#include <algorithm>

#include "fetch/node_names.h"
#include "mxnet/dialect/dialect.h"

namespace tofu {

bool PlainTiles::IsPlain(NodeEntry entry) {
  for (; num_nodes_ < graph_.num_nodes(); ++num_nodes_) {
    for (int output = 0; output < graph_.nodes[num_nodes_].num_outputs; ++output) {
      is_plain_.push_back(static_cast<char>(LeavesPlain(num_nodes_, output)));
    }
  }
  return is_plain_[graph_.entry_id(entry)] != 0;
}

bool PlainTiles::CanBeViewed(NodeEntry entry) {
  return graph_.shape(entry).size() <= kMaxViewedRank && IsPlain(entry);
}

bool PlainTiles::LeavesPlain(int node, int output) const {
  const Node& n = graph_.nodes[node];
  if (IsSurelyPlain(graph_.shape({node, output}), graph_.dtype({node, output}))) {
    return true;
  }
  if (n.op == kMultiFetchOp) return true;
  if (n.is_variable()) return false;
  const Layout layout = LayoutOf(n.op, output);
  if (layout != Layout::kInputs) return layout == Layout::kPlain;
  return std::all_of(n.inputs.begin(), n.inputs.end(), [&](NodeEntry input) {
    return is_plain_[graph_.entry_id(input)] != 0;
  });
}

}  // namespace tofu
