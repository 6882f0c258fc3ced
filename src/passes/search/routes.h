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
// An output goes from where it is made to its tiles in the same way. A sum whose terms
// lie on several hosts has stops of two kinds. First the workers of a host add up its
// terms: each those of one piece of what they all have made, over steps that reduce. Such
// partial sums are added up to pieces of the tiles, in any of which a slow link is
// crossed by one term of each host; pieces are gathered as above.
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

// Pieces of what workers have made of a sum, in which they can add up the terms of the
// steps that divide them. None at the highest level of `reduces`, the steps at which
// workers have different terms; none if what they have made differs in its extents by
// more than one element.
std::vector<TileSplits> PartialStops(const GroupBoxes& made, StepSet reduces,
                                     const std::vector<int>& levels);

// Pieces of an output's tiles, over all steps at which workers have the same tile. Of one
// level's steps those that reduce nothing come first, as in reduction_tiles.h.
std::vector<TileSplits> OutputStops(const GroupBoxes& tiles, StepSet reduces,
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
