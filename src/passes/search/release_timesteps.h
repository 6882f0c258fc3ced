// Decides again, starting from a plan, the timesteps that coarsening merged, and the
// element-wise operators among them.
//
// Input:      a plan of merged classes with timesteps; other plans stay as they are.
// Output:     the plan of unmerged classes if it costs less or is proven optimal; else
//             the input.
// Errors:     none.
// Position:   after recursive_search.h, a stage of make_plan.h.
// Complexity: one search of recursive_search.h from a start.
#ifndef TOFU_PASSES_SEARCH_RELEASE_TIMESTEPS_H_
#define TOFU_PASSES_SEARCH_RELEASE_TIMESTEPS_H_

#include "passes/search/plan_request.h"

namespace tofu {

Plan ReleaseTimesteps(const PlanRequest& request, const CoarseGraph& merged,
                      bool may_be_whole, Plan plan);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RELEASE_TIMESTEPS_H_
