// Makes a plan in which tensors may stay whole no dearer than one in which they may not.
//
// More choices do not guarantee a cheaper plan: a search that merges, or sweeps, may end
// near where it began. So the same stages run without whole tensors, and their plan is
// the start of a search in which tensors may be whole.
//
// Input:      the plan with whole tensors, and the one without.
// Output:     the cheapest of both and of the one that starts from the latter. The bound
//             is of plans that may have whole tensors.
// Errors:     none.
// Position:   last stage of make_plan.h.
// Complexity: one search of recursive_search.h from a start, only if the plan without
//             whole tensors costs less, or has its steps in another order. Without that
//             plan, one search of profiles for each order of the parts.
#ifndef TOFU_PASSES_SEARCH_ALLOW_WHOLE_H_
#define TOFU_PASSES_SEARCH_ALLOW_WHOLE_H_

#include "passes/search/plan_request.h"

namespace tofu {

// Whether a plan without whole tensors may cost less than `plan`. False only if the bound
// by profiles (joint_search.h) proves that none does, whatever the stages release.
bool MayCutCostLess(const PlanRequest& request, const Plan& plan);

Plan AllowWhole(const PlanRequest& request, Plan plan, const Plan& cut);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_ALLOW_WHOLE_H_
