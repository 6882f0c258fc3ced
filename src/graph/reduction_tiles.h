// Shares a reduction among workers that need the same reduced tile: each reduces a piece
// of the tile, and all gather the pieces.
//
// If k workers hold terms of a tile of S bytes, and all of them need the tile, each
// could fetch k - 1 terms: k * (k - 1) * S bytes in all. In pieces it is (k - 1) * S to
// reduce and (k - 1) * S to gather. The pieces may lie along any dimension.
// Which one fetches least depends on what each worker has produced, so callers compare
// all tilings, and the reduction of the whole tile by everyone, by their bytes
// (cost.h, plan_output.h).
//
// Complexity: O(rank^2 * steps).
#ifndef TOFU_GRAPH_REDUCTION_TILES_H_
#define TOFU_GRAPH_REDUCTION_TILES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/box.h"
#include "graph/graph.h"

namespace tofu {

// One step divides the tile along a dimension.
struct TileSplit {
  int step = 0;
  int dim = 0;
  bool operator==(const TileSplit& other) const {
    return step == other.step && dim == other.dim;
  }
};
// Nested, outermost first.
using TileSplits = std::vector<TileSplit>;

// A step at which the workers that differ have the same tile.
struct SharedStep {
  int step = 0;
  int parts = 1;
  bool reduces = false;  // they hold different terms
};

// The dimension to divide by `parts`: `first` or the next one that divides evenly; if
// none does, `first` or the next one that has an element for every part; else -1.
int DimensionToSplit(size_t first, int parts, const Shape& extents);

// The ways to divide tiles over `steps`, of which the smallest has these extents, without
// equal ones. Each begins with another dimension (DimensionToSplit), so the pieces'
// extents depend on the steps' parts alone, not on their order. Steps that reduce nothing
// are outermost: there a worker's piece can lie within what it has produced. None if the
// smallest tile has too few elements in every dimension.
std::vector<TileSplits> ReductionTilings(const Shape& tile,
                                         const std::vector<SharedStep>& steps);

// The piece of a worker with these digits, of steps with these parts.
Box PieceBox(Box tile, const TileSplits& splits, const std::vector<int>& parts,
             const std::vector<int>& digits);

}  // namespace tofu

#endif  // TOFU_GRAPH_REDUCTION_TILES_H_
