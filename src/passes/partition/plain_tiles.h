// Tells which tensors of a growing graph are surely in the plain layout when they run on
// a CPU, so that other workers may read them in place (mxnet/remote_views.h).
//
// Input:      a graph; nodes may be added between two calls.
// Rule:       oneDNN lays out tensors of at least three dimensions and some types anew in
//             some operators (LayoutOf, mxnet/dialect/dialect.h), and others pass on what
//             they get. In prediction, an operator may do so with its weights, so no such
//             variable is surely plain.
// Position:   within partition.
// Complexity: linear in nodes and edges.
#ifndef TOFU_PASSES_PARTITION_PLAIN_TILES_H_
#define TOFU_PASSES_PARTITION_PLAIN_TILES_H_

#include <vector>

#include "graph/graph.h"

namespace tofu {

class PlainTiles {
 public:
  explicit PlainTiles(const Graph& graph) : graph_(graph) {}

  bool IsPlain(NodeEntry entry);

  // Whether a fetch can read an entry in place.
  bool CanBeViewed(NodeEntry entry);

 private:
  bool LeavesPlain(int node, int output) const;

  const Graph& graph_;
  int num_nodes_ = 0;           // so far
  std::vector<char> is_plain_;  // [entry]
};

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_PLAIN_TILES_H_
