// Routes: a region that several workers of a host need can cross the slow link once
// instead of once for each of them. Each fetches a piece of it, and they gather the
// pieces within the host. With more levels of links there may be more stops between.
//
// A state of a region is how it lies on the workers that need it: as tiles, in pieces, or
// whole. Pieces are given by splits (reduction_tiles.h) over steps at which workers need
// the same. The innermost level's splits come first, so a stop whose splits begin those
// of another one consists of larger pieces, which the workers of a level gather from the
// smaller ones. A move is a fetch; docs/design/0018-routes.md lists them.
//
// Input:      the regions that the workers need, and the level of links of each step.
// Output:     the stops possible; the cheapest way through them.
// Errors:     none.
// Position:   used by time_cost.h, which knows what a move costs.
// Complexity: O(rank^2 * steps) for the stops; O(n^2) moves for n states.
#ifndef TOFU_PASSES_SEARCH_ROUTES_H_
#define TOFU_PASSES_SEARCH_ROUTES_H_

#include <functional>
#include <vector>

#include "graph/reduction_tiles.h"
#include "passes/search/cost.h"

namespace tofu {

// `levels`: of each step's links, never higher than the step's before. None if all steps
// cross the same level, or if no workers of a group need the same.
std::vector<TileSplits> RouteStops(const GroupBoxes& needed,
                                   const std::vector<int>& levels);

// Whether workers can gather pieces of `to` from those of `from`.
bool MayGather(const TileSplits& from, const TileSplits& to);

// The cost of a move between states; infinite if there is none.
using MoveCost = std::function<double(int from, int to)>;

// The states after the first one, up to the last, on the cheapest way; none if there is
// no way. Costs are at least 0. Of equal ways one of the fewest moves.
std::vector<int> CheapestWay(int states, const MoveCost& cost);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_ROUTES_H_
