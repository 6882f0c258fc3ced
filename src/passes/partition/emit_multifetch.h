// Carries out FetchSpecs with MultiFetch: only the data that readers use crosses contexts
// (paper section 6):
//
//   _tofu_publish     on the owner: the tile -> a handle that holds its address
//   _tofu_multifetch  on the reader: handles of remote tiles, then tiles
//                     -> the assembled region, and an acknowledgement
//   _tofu_retire      on the owner: the tile, its handle, all acknowledgements
//
// bundle_fetches.h joins publications and fetches: then a handle has several tiles'
// addresses, and a fetch assembles several regions.
//
// Handles and acknowledgements are read in place, or the executor copies them to their
// readers (Crossing), as it may pass an operator only arrays of its own worker. The
// retirement reads the tile after all of its readers, so any later use of the tile's
// memory waits for them. It also reads the handle, so the tile is not published again
// before that. A fetch that reads the tiles themselves needs neither publication nor
// retirement: the engine lets no operator write to an array that another still reads.
//
// Input:      specs (fetch.h) and the entry that every source worker holds.
// Output:     nodes appended to the builder; a tile is published once.
// Invariants: a region that is exactly the reader's own array adds no node.
// Position:   before retire.h, which adds the retirements.
// Complexity: linear in pieces.
#ifndef TOFU_PASSES_PARTITION_EMIT_MULTIFETCH_H_
#define TOFU_PASSES_PARTITION_EMIT_MULTIFETCH_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fetch/crossing.h"
#include "fetch/multifetch_spec.h"
#include "graph/graph.h"
#include "passes/divide/fetch.h"
#include "passes/partition/graph_builder.h"

namespace tofu {

class MultiFetchEmitter {
 public:
  MultiFetchEmitter(Crossing crossing, GraphBuilder* builder)
      : crossing_(crossing), builder_(*builder) {}

  // `entries[w]` is the source array of worker w. New nodes are called
  // "<name>/..." and "<tile>/publish".
  NodeEntry Emit(const FetchSpec& spec, const std::vector<NodeEntry>& entries, int dtype,
                 const std::string& name);

 private:
  bool IsReadDirectly(NodeEntry tile) const;
  // Returns the tile, or a copy of it in the plain layout on its own worker.
  NodeEntry Readable(NodeEntry tile);
  NodeEntry Handle(NodeEntry tile);
  NodeEntry Fetch(const MultiFetchSpec& spec, std::vector<NodeEntry> inputs, int worker,
                  const std::string& name);

  const Crossing crossing_;
  GraphBuilder& builder_;
  // By the tile's node and index.
  std::map<std::pair<int, int>, NodeEntry> handles_;
  std::map<std::pair<int, int>, NodeEntry> copies_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_EMIT_MULTIFETCH_H_
