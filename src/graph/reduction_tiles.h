// Shares a reduction among workers that need the same reduced tile: each reduces a piece
// of the tile, and all gather the pieces.
//
// If k workers hold terms of a tile of S bytes, and all of them need the tile, each
// could fetch k - 1 terms: k * (k - 1) * S bytes in all. In pieces it is (k - 1) * S to
// reduce and (k - 1) * S to gather. The pieces may lie along any dimension. The best
// dimension depends on the regions that workers have produced, so callers compare the
// bytes of all tilings, and of a reduction of the whole tile by every worker (cost.h).
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

// The division of the tile along a dimension by one step.
struct TileSplit {
  int step = 0;
  int dim = 0;
  bool operator==(const TileSplit& other) const {
    return step == other.step && dim == other.dim;
  }
};
// Nested splits, outermost first.
using TileSplits = std::vector<TileSplit>;

// A step whose workers have the same tile.
struct SharedStep {
  int step = 0;
  int parts = 1;
  bool reduces = false;  // the step's workers hold different terms
};

// The dimension to divide by `parts`: `first` or the next one that divides evenly; if
// none does, `first` or the next one that has an element for every part; else -1.
int DimensionToSplit(size_t first, int parts, const Shape& extents);

// The different ways to divide tiles over `steps`; `tile` has the smallest tile's
// extents. Each way begins with another dimension (DimensionToSplit), so the pieces'
// extents depend on the steps' parts alone, not on their order. Steps that reduce nothing
// are outermost: there a worker's piece can lie within the region that it has produced.
// Empty if the smallest tile has too few elements in every dimension.
std::vector<TileSplits> ReductionTilings(const Shape& tile,
                                         const std::vector<SharedStep>& steps);

// The piece of a worker with these digits, at steps with these parts.
Box PieceBox(Box tile, const TileSplits& splits, const std::vector<int>& parts,
             const std::vector<int>& digits);

}  // namespace tofu

#endif  // TOFU_GRAPH_REDUCTION_TILES_H_
