// Decides again, starting from a plan, those element-wise operators for which that pays
// (released_operators.h).
//
// Each step is decided again with nothing merged. The operators whose tensors are then
// cut differently stay released, and all steps are decided together again. Where tensors
// may stay whole, so may all tensors of a released operator: it is split as any other, so
// no two workers compute the same. They gather its output, and hold all of it.
//
// Input:      a plan of merged classes without timesteps, and the profiles that its
//             search told apart. Other plans stay as they are, and so do all plans if the
//             objective counts operators.
// Output:     a plan that costs no more.
// Errors:     none.
// Position:   after release_timesteps.h, a stage of make_plan.h.
// Complexity: two searches of recursive_search.h from a start.
#ifndef TOFU_PASSES_SEARCH_RELEASE_ELEMENTWISE_H_
#define TOFU_PASSES_SEARCH_RELEASE_ELEMENTWISE_H_

#include "passes/search/plan_request.h"

namespace tofu {

Plan ReleaseElementwise(const PlanRequest& request, const CoarseGraph& merged,
                        bool may_be_whole, Plan plan, KnownProfiles* known);

// The classes for searches within a memory limit: they merge all but the operators that
// the best plan without the limit releases. Timesteps stay merged.
CoarseGraph ClassesWithin(const PlanRequest& request, const CoarseGraph& merged,
                          bool may_be_whole, const Plan& unlimited);

// Releases the operators whose tensors a sweep cuts differently, even if the swept plan
// costs more, and decides all steps again from there.
Plan ReleaseAgain(const PlanRequest& request, bool may_be_whole, const Plan& plan,
                  KnownProfiles* known);

// Decides each step again with nothing merged, and returns the cheaper plan: a release
// without its last search, of all steps together.
Plan SweepReleased(const PlanRequest& request, const CoarseGraph& merged,
                   bool may_be_whole, Plan plan);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RELEASE_ELEMENTWISE_H_
