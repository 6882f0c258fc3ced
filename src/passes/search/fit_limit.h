// Finds the cheapest plan of merged classes within the request's memory limit.
//
// Input:      the classes; whether tensors may stay whole. `start`: a plan of the merged
//             classes to fit; null: the best plans without the limit are found first.
// Output:     the plan, which needs more than the limit if none was found that fits.
// Errors:     none.
// Position:   instead of the search without a limit, a stage of make_plan.h.
// Complexity: two searches of recursive_search.h, and one of memory_search.h.
#ifndef TOFU_PASSES_SEARCH_FIT_LIMIT_H_
#define TOFU_PASSES_SEARCH_FIT_LIMIT_H_

#include <cstdint>

#include "passes/search/plan_request.h"

namespace tofu {

Plan FitLimit(const PlanRequest& request, const CoarseGraph& merged, bool may_be_whole,
              const Plan* start = nullptr);

// The most bytes that a worker's tiles take under a plan of these classes.
int64_t PeakTileBytes(const PlanRequest& request, const CoarseGraph& coarse,
                      const Plan& plan);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_FIT_LIMIT_H_
