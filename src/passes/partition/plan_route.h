// Plans the fetches of a route (graph/plan.h): workers that need the same region of a
// tensor each fetch a piece of it, and gather the pieces from each other.
//
// Input:      the regions that the workers need, and the plan's stops.
// Output:     for each move a fetch per worker. The first moves start from the tiles; the
//             last one assembles the regions.
// Invariants: each worker assembles the region that it would fetch directly, and gathers
//             only from workers that need the same region.
// Errors:     UserError(kPlan) for stops that do not fit the regions.
// Position:   within partition.
// Complexity: O(m * k^2 * r) for m moves of k workers and tensors of rank r.
#ifndef TOFU_PASSES_PARTITION_PLAN_ROUTE_H_
#define TOFU_PASSES_PARTITION_PLAN_ROUTE_H_

#include <string>
#include <vector>

#include "graph/box.h"
#include "graph/reduction_tiles.h"
#include "passes/partition/fetch.h"
#include "passes/partition/root_fetches.h"

namespace tofu {

struct RouteRequest {
  std::string name;          // of the input, for errors
  std::vector<Box> regions;  // [worker]; may reach outside the tensor
  Box tensor;
  std::string fill = "0";
  std::vector<TileSplits> stops;
  std::vector<int> parts;  // of the plan's steps
};

// [move][worker]. `from_tiles` plans a fetch of a region from the tensor's tiles.
std::vector<std::vector<FetchSpec>> PlanRoute(const RouteRequest& request,
                                              const FetchPlanner& from_tiles);

// [worker]: its piece of its region. `name`: the tensor's, for errors.
std::vector<Box> RoutePieces(const std::string& name, std::vector<Box> regions,
                             const TileSplits& splits, const std::vector<int>& parts);

// Fails unless `splits` begin with all of `first`, and continue after them.
void CheckDivides(const std::string& name, const TileSplits& splits,
                  const TileSplits& first);

// Fails unless the route fits; `found` describes the misfit.
void CheckRoute(bool fits, const std::string& name, const std::string& found);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_PLAN_ROUTE_H_
