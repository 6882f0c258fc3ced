// Carries out FetchSpecs with MultiFetch: no data crosses contexts except what the
// readers read (paper section 6):
//
//   _tofu_publish     on the owner: the tile -> a handle that holds its address
//   _tofu_multifetch  on the reader: handles of remote tiles, then local tiles
//                     -> the assembled region, and an acknowledgement
//   _tofu_retire      on the owner: the tile, its handle, all acknowledgements
//
// The executor moves handles and acknowledgements between workers. The retirement
// reads the tile after all of its readers, which makes any later use of the tile's
// memory wait for them. It also reads the handle, which keeps the tile from being
// published again before that.
//
// Input:      specs (fetch.h) and the entry that every source worker holds.
// Output:     nodes appended to the builder; a tile is published once.
// Invariants: a region that is exactly the reader's own array adds no node.
// Position:   Retire after the last fetch of a graph, for partition and for each
//             of the phases.
// Complexity: linear in pieces.
#ifndef TOFU_PASSES_PARTITION_EMIT_MULTIFETCH_H_
#define TOFU_PASSES_PARTITION_EMIT_MULTIFETCH_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "passes/partition/fetch.h"
#include "passes/partition/graph_builder.h"

namespace tofu {

class MultiFetchEmitter {
 public:
  explicit MultiFetchEmitter(GraphBuilder* builder) : builder_(*builder) {}

  // `entries[w]` is the source array of worker w. New nodes are called
  // "<name>/..." and "<tile>/publish".
  NodeEntry Emit(const FetchSpec& spec, const std::vector<NodeEntry>& entries, int dtype,
                 const std::string& name);

 private:
  NodeEntry Handle(NodeEntry tile);

  GraphBuilder& builder_;
  std::map<std::pair<int, int>, NodeEntry> handles_;  // by the tile's node and index
};

// Adds a retirement for every published tile that the builder's heads need, in the
// graph's order. Each becomes a head before all existing heads. Returns their number,
// by which the numbers of the existing heads grow. An executor orders nodes by the first
// head that needs them, so memory becomes free right after its last reader.
int Retire(GraphBuilder* builder);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_EMIT_MULTIFETCH_H_
