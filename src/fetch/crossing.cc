#include "fetch/crossing.h"

#include "base/error.h"

namespace tofu {

Crossing ParseCrossing(const std::string& name) {
  TOFU_CHECK_USER(name == "plain_tiles" || name == "tiles", Blame::kPlan)
      << "partition: found crossing \"" << name
      << "\", expected \"plain_tiles\" or \"tiles\"; choose one of them";
  return name == "tiles" ? Crossing::kTiles : Crossing::kPlainTiles;
}

}  // namespace tofu
