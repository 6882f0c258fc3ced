// Carries out FetchSpecs with MultiFetch: one operator on the reader,
// _tofu_multifetch(tiles...) -> the assembled region, reads the tiles of other workers in
// place, so only the data that readers use crosses contexts (paper section 6). The engine
// lets no operator write to an array that another still reads.
//
// On CPUs, oneDNN's operators leave tensors in layouts of their own, and note with an
// array in which. Others must not look at the note meanwhile (mxnet/remote_views.h). So
// the owner of a tile that may be in such a layout copies it first, with the same
// operator: as a vector, which readers can view whatever the tile's rank. A copy serves
// the fetches of one round (partition.cc), the owner's, too, so that the tile may die.
//
// Input:      specs (fetch.h) and the entry that every source worker holds.
// Output:     nodes appended to the builder.
// Invariants: a region that is exactly the reader's own array adds no node.
// Position:   within partition; bundle_fetches.h joins the fetches of an operator.
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
#include "passes/partition/plain_tiles.h"

namespace tofu {

// A fetch without pieces, of which only the memory counts.
struct FetchOutline {
  Shape region;
  int dtype = 0;
  int worker = 0;
  std::vector<int> sources;  // the workers whose entries it reads
};

class MultiFetchEmitter {
 public:
  MultiFetchEmitter(Crossing crossing, GraphBuilder* builder)
      : crossing_(crossing), builder_(*builder), plain_(builder->graph()) {}

  // Forgets the copies of the last round: a tile that is fetched again is copied again.
  void BeginRound() { copies_.clear(); }

  // Prepares for its readers a tile that several workers read in this round, its owner
  // among them: if it needs a copy, the owner reads that, too, and the tile itself may
  // die.
  void Share(NodeEntry tile) { Readable(tile); }

  // `entries[w]` is the source array of worker w. New nodes are called "<name>/..." and
  // "<tile>/plain".
  NodeEntry Emit(const FetchSpec& spec, const std::vector<NodeEntry>& entries, int dtype,
                 const std::string& name);

  NodeEntry Emit(const FetchOutline& outline, const std::vector<NodeEntry>& entries,
                 const std::string& name);

 private:
  // Returns the tile, or a copy of it in the plain layout on its own worker.
  NodeEntry Readable(NodeEntry tile);
  // Returns the copy, if there is one: then the tile may die.
  NodeEntry OnOwner(NodeEntry tile) const;
  NodeEntry Fetch(const MultiFetchSpec& spec, std::vector<NodeEntry> inputs, int worker,
                  const std::string& name);

  const Crossing crossing_;
  GraphBuilder& builder_;
  PlainTiles plain_;
  // Of the present round, by the tile's node and index.
  std::map<std::pair<int, int>, NodeEntry> copies_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_EMIT_MULTIFETCH_H_
