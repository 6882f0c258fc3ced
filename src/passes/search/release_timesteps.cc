#include "passes/search/release_timesteps.h"

#include "passes/search/modes.h"
#include "passes/search/recursion/recursive_search.h"

namespace tofu {

Plan ReleaseTimesteps(const PlanRequest& request, const CoarseGraph& merged,
                      bool may_be_whole, Plan plan) {
  if (!ReleasesMerges(request.options.mode) || plan.cost() == 0 ||
      IsPast(DeadlineOf(request)) || !HasTimesteps(merged)) {
    return plan;
  }
  if (request.on_progress) {
    request.on_progress({"releasing timesteps", plan.cost(), plan.lower_bound()});
  }
  const CoarseGraph fine = UnmergedClasses(request, may_be_whole);
  Plan released = SearchRecursively(request.graph, request.table, fine,
                                    OptionsOf(request, fine, &plan, may_be_whole));
  TellRelease(request, plan, released);
  return released.cost() < plan.cost() || released.status == PlanStatus::kOptimal
             ? released
             : plan;
}

}  // namespace tofu
