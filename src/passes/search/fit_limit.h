// Finds the cheapest plan of some classes within the request's memory limit.
//
// Input:      the classes; whether tensors may stay whole; the best plan without the
//             limit, which may be of other classes.
// Output:     the plan, which needs more than the limit if none was found that fits.
// Errors:     none.
// Position:   after the search without a limit, a stage of make_plan.h.
// Complexity: at most two searches of recursive_search.h, and one of memory_search.h.
#ifndef TOFU_PASSES_SEARCH_FIT_LIMIT_H_
#define TOFU_PASSES_SEARCH_FIT_LIMIT_H_

#include <cstdint>

#include "passes/search/plan_request.h"

namespace tofu {

Plan FitLimit(const PlanRequest& request, const CoarseGraph& coarse, bool may_be_whole,
              const Plan& unlimited);

// Improves a plan of these classes, and keeps it within the limit.
Plan ImproveWithin(const PlanRequest& request, const CoarseGraph& coarse,
                   bool may_be_whole, const Plan& start);

// The most bytes that a worker's tiles take under a plan of these classes.
int64_t PeakTileBytes(const PlanRequest& request, const CoarseGraph& coarse,
                      const Plan& plan);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_FIT_LIMIT_H_
