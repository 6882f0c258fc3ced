// Kinds of data that a worker's fetches read from other workers.
#ifndef TOFU_FETCH_CROSSING_H_
#define TOFU_FETCH_CROSSING_H_

#include <string>

namespace tofu {

enum class Crossing {
  // For CPU contexts, where oneDNN's operators leave tensors in layouts of their own:
  // tiles that are surely in the plain layout, and copies that the others' owners make.
  kPlainTiles,
  kTiles,  // GPUs
};

// Throws UserError(kPlan) unless `name` is "plain_tiles" or "tiles".
Crossing ParseCrossing(const std::string& name);

}  // namespace tofu

#endif  // TOFU_FETCH_CROSSING_H_
