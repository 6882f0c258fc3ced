#include "passes/partition/plain_tiles.h"

#include <algorithm>

#include "fetch/node_names.h"
#include "mxnet/dialect/dialect.h"

namespace tofu {

bool PlainTiles::CanBeViewed(NodeEntry entry) {
  for (; num_nodes_ < graph_.num_nodes(); ++num_nodes_) {
    for (int output = 0; output < graph_.nodes[num_nodes_].num_outputs; ++output) {
      is_plain_.push_back(static_cast<char>(IsPlain(num_nodes_, output)));
    }
  }
  return graph_.shape(entry).size() <= kMaxViewedRank &&
         is_plain_[graph_.entry_id(entry)] != 0;
}

bool PlainTiles::IsPlain(int node, int output) const {
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
