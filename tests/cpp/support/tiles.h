// The tiles of a tensor as sources of a fetch, for tests.
#ifndef TOFU_TESTS_CPP_SUPPORT_TILES_H_
#define TOFU_TESTS_CPP_SUPPORT_TILES_H_

#include <algorithm>
#include <vector>

#include "graph/box.h"
#include "passes/divide/fetch.h"

namespace tofu {

// The tiles of all workers: `worker`'s own one first, then those of workers that share
// the most leading digits with it.
inline std::vector<FetchSource> TilesNear(int worker, const Shape& shape,
                                          const std::vector<int>& cuts,
                                          const std::vector<int>& parts) {
  int workers = 1;
  for (int p : parts) workers *= p;
  std::vector<FetchSource> tiles;
  for (int w = 0; w < workers; ++w) {
    tiles.push_back({w, TileBox(shape, cuts, parts, WorkerDigits(w, parts))});
  }
  const std::vector<int> own = WorkerDigits(worker, parts);
  const auto shared = [&](const FetchSource& tile) {
    const std::vector<int> digits = WorkerDigits(tile.worker, parts);
    return std::mismatch(own.begin(), own.end(), digits.begin()).first - own.begin();
  };
  std::stable_sort(tiles.begin(), tiles.end(),
                   [&](const auto& a, const auto& b) { return shared(a) > shared(b); });
  return tiles;
}

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_TILES_H_
