// The bounds of a tensor's tiles along each dimension. Steps that trade places
// (passes/search/tilings/patterns.h) give the same tiles to other workers, so a grid
// holds for all their orders.
#ifndef TOFU_GRAPH_TILE_GRID_H_
#define TOFU_GRAPH_TILE_GRID_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/cuts.h"
#include "graph/graph.h"

namespace tofu {

// The tiles along one dimension.
class GridSide {
 public:
  explicit GridSide(int64_t extent) : extent_(extent) {}

  // Cuts every tile.
  void Cut(int parts);
  // Forgets the begins of tiles; from now on only their sizes are known.
  void ForgetBounds() { nesting_ = 0; }

  int64_t shortest() const { return extent_ / parts_; }
  int64_t longest() const { return (extent_ + parts_ - 1) / parts_; }

  // For each interval [begin[i], end[i]), the most elements that it shares with one tile.
  template <typename Bounds>
  void MostShared(const Bounds& begin, const Bounds& end,
                  std::vector<int64_t>* most) const {
    const std::vector<int64_t>& tile_ends = Ends();
    most->clear();
    for (size_t i = 0; i < begin.size(); ++i) {
      most->push_back(MostShared(begin[i], end[i], tile_ends));
    }
  }

  bool operator==(const GridSide& other) const {
    return extent_ == other.extent_ && parts_ == other.parts_ &&
           nesting_ == other.nesting_;
  }

 private:
  // Whether tiles end at the multiples of one size, or at unknown places.
  bool IsRegular() const { return extent_ % parts_ == 0 || nesting_ == 0; }
  // The ends of the tiles; empty if they are regular. Valid until the next call for
  // another side.
  const std::vector<int64_t>& Ends() const;
  int64_t MostShared(int64_t begin, int64_t end,
                     const std::vector<int64_t>& tile_ends) const;

  int64_t extent_;
  int64_t parts_ = 1;
  // The parts of the cuts, in order, as Elias gamma codes after a leading 1; 0: unknown.
  // At most 2^14 parts in all take 43 bits.
  uint64_t nesting_ = 1;
};

class TileGrid {
 public:
  TileGrid(const Shape& shape, const Cuts& cuts, const std::vector<int>& parts);

  GridSide& side(size_t dim) { return sides_[dim]; }
  const GridSide& side(size_t dim) const { return sides_[dim]; }
  Shape ShortestSides() const;

 private:
  std::vector<GridSide> sides_;
};

}  // namespace tofu

#endif  // TOFU_GRAPH_TILE_GRID_H_
