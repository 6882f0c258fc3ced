// Routes: a region that several workers of a host need can cross the slow link once
// instead of once per worker. Each worker fetches a piece of it, and then they gather the
// pieces within the host. More levels of links allow more stops on the way.
//
// A region's state says how it lies on the workers that need it: as tiles, in pieces, or
// whole. Splits (reduction_tiles.h) describe the pieces, over steps whose workers need
// the same region. The innermost level's splits come first: if one stop's splits begin
// those of another, its pieces are larger, and the workers of a level gather them from
// the smaller ones. A move is a fetch; docs/design/0018-routes.md lists them.
//
// An output goes from its producers to its tiles in the same way. A sum whose terms lie
// on several hosts has two kinds of stops. First the workers of a host add up its terms,
// each worker those of one piece, over steps that reduce. Then these partial sums are
// added up to pieces of the tiles, so that one term of each host crosses the slow link;
// pieces are gathered as above.
//
// Input:      the regions that the workers need, and the level of links of each step.
// Output:     the possible stops; the cheapest way through them.
// Errors:     none.
// Position:   used by time_cost.h, which knows what a move costs.
// Complexity: O(rank^2 * steps) for the stops; O(n^2) moves for n states.
#ifndef TOFU_PASSES_SEARCH_COST_ROUTES_H_
#define TOFU_PASSES_SEARCH_COST_ROUTES_H_

#include <functional>
#include <vector>

#include "graph/reduction_tiles.h"
#include "passes/search/cost/cost.h"

namespace tofu {

// The stops of a region. `levels`: the level of each step's links, never higher than that
// of the step before. Empty if all steps cross the same level, or if no two workers of a
// group need the same region.
std::vector<TileSplits> RouteStops(const GroupBoxes& needed,
                                   const std::vector<int>& levels);

// The stops at which workers have added up terms of a sum: each has a piece of the boxes
// in `made`, with the terms of the steps that divide it. `reduces`: the steps whose
// workers have different terms; those of the highest level have no stop. Empty if the
// boxes' extents differ by more than one element.
std::vector<TileSplits> PartialStops(const GroupBoxes& made, StepSet reduces,
                                     const std::vector<int>& levels);

// The stops at which workers have pieces of an output's tiles, over all steps whose
// workers own the same tile. Steps of one level that reduce nothing come first, as in
// reduction_tiles.h.
std::vector<TileSplits> OutputStops(const GroupBoxes& tiles, StepSet reduces,
                                    const std::vector<int>& levels);

// Whether workers can gather pieces of `to` from those of `from`.
bool MayGather(const TileSplits& from, const TileSplits& to);

// The cost of a move between states; infinite if there is none.
using MoveCost = std::function<double(int from, int to)>;

// Returns the cheapest path from state 0 (excluded) to the last one; empty if there is
// none. Of equally cheap paths, one with the fewest moves. Costs must not be negative.
std::vector<int> CheapestWay(int states, const MoveCost& cost);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_COST_ROUTES_H_
