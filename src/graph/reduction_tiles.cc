#include "graph/reduction_tiles.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace tofu {
namespace {

// Divides a tile over the steps in their order, along `first` and the dimensions after
// it.
TileSplits SplitFrom(size_t first, Shape extents, const std::vector<SharedStep>& steps) {
  TileSplits splits;
  for (const SharedStep& step : steps) {
    const int dim = DimensionToSplit(first, step.parts, extents);
    if (dim < 0) continue;
    extents[dim] /= step.parts;
    splits.push_back({step.step, dim});
  }
  return splits;
}

}  // namespace

int DimensionToSplit(size_t first, int parts, const Shape& extents) {
  for (const bool divides : {true, false}) {
    for (size_t i = 0; i < extents.size(); ++i) {
      const size_t d = (first + i) % extents.size();
      if (divides ? CanCut(extents[d], parts) && extents[d] % parts == 0
                  : CanCut(extents[d], parts)) {
        return static_cast<int>(d);
      }
    }
  }
  return -1;
}

std::vector<TileSplits> ReductionTilings(const Shape& tile,
                                         const std::vector<SharedStep>& steps) {
  // The order of equal steps has no effect on the extents.
  std::vector<SharedStep> sorted = steps;
  std::sort(sorted.begin(), sorted.end(), [](const SharedStep& a, const SharedStep& b) {
    return std::tuple(-a.parts, a.reduces, a.step) <
           std::tuple(-b.parts, b.reduces, b.step);
  });
  const auto reduces = [&](int step) {
    return std::any_of(steps.begin(), steps.end(), [&](const SharedStep& shared) {
      return shared.step == step && shared.reduces;
    });
  };
  std::vector<TileSplits> tilings;
  for (size_t first = 0; first < tile.size(); ++first) {
    TileSplits splits = SplitFrom(first, tile, sorted);
    std::stable_partition(splits.begin(), splits.end(),
                          [&](const TileSplit& split) { return !reduces(split.step); });
    if (splits.empty() ||
        std::find(tilings.begin(), tilings.end(), splits) != tilings.end()) {
      continue;
    }
    tilings.push_back(std::move(splits));
  }
  return tilings;
}

Box PieceBox(Box tile, const TileSplits& splits, const std::vector<int>& parts,
             const std::vector<int>& digits) {
  for (const TileSplit& split : splits) {
    const Range piece = Piece({tile.begin[split.dim], tile.end[split.dim]},
                              parts[split.step], digits[split.step]);
    tile.begin[split.dim] = piece.begin;
    tile.end[split.dim] = piece.end;
  }
  return tile;
}

}  // namespace tofu
