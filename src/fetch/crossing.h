// Kinds of data that a worker's fetches read from other workers.
#ifndef TOFU_FETCH_CROSSING_H_
#define TOFU_FETCH_CROSSING_H_

#include <string>

namespace tofu {

enum class Crossing {
  kCopies,  // copies of handles, which the executor makes: anywhere
  // Tiles that are surely in the plain layout, small copies of small ones, and handles of
  // the others: CPU contexts, where oneDNN's operators leave tensors in layouts of their
  // own.
  kPlainTiles,
  kTiles,  // tiles: GPUs
};

// UserError(kPlan) unless `name` is "copies", "plain_tiles" or "tiles".
Crossing ParseCrossing(const std::string& name);

}  // namespace tofu

#endif  // TOFU_FETCH_CROSSING_H_
