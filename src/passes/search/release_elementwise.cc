#include "passes/search/release_elementwise.h"

#include <utility>
#include <vector>

#include "passes/search/modes.h"
#include "passes/search/recursion/recursive_search.h"
#include "passes/search/released_operators.h"
#include "passes/search/tilings/class_cuts.h"

namespace tofu {
namespace {

CoarseGraph ClassesReleasing(const PlanRequest& request, const CoarseGraph& fine,
                             const Plan& swept, bool may_be_whole) {
  return MergedClasses(request, may_be_whole,
                       OperatorsToRelease(request.graph, request.table, fine, swept));
}

// Decides all steps together, from the swept plan, with the classes `some`, which release
// the operators whose tensors it cuts differently.
Plan DecideReleased(const PlanRequest& request, const CoarseGraph& some,
                    bool may_be_whole, const Plan& swept, KnownProfiles* known) {
  RecursiveOptions options = OptionsOf(request, some, &swept, may_be_whole);
  options.is_quick = false;
  options.known = known;
  return SearchRecursively(request.graph, request.table, some, options);
}

Plan SweepUnmerged(const PlanRequest& request, const CoarseGraph& fine, bool may_be_whole,
                   const Plan& start) {
  RecursiveOptions sweep = OptionsOf(request, fine, &start, may_be_whole);
  sweep.method = Method::kSweep;
  return SearchRecursively(request.graph, request.table, fine, sweep);
}

// Whether a release may save anything.
bool MayRelease(const PlanRequest& request, const CoarseGraph& merged, const Plan& plan) {
  return ReleasesMerges(request.options.mode) && plan.cost() > 0 &&
         !IsPast(DeadlineOf(request)) && !HasTimesteps(merged) &&
         !CountsOperators(request, merged);
}

}  // namespace

Plan ReleaseElementwise(const PlanRequest& request, const CoarseGraph& merged,
                        bool may_be_whole, Plan plan, KnownProfiles* known) {
  if (!MayRelease(request, merged, plan)) return plan;
  if (request.on_progress) {
    request.on_progress(
        {"releasing element-wise operators", plan.cost(), plan.lower_bound()});
  }
  const CoarseGraph fine = UnmergedClasses(request, may_be_whole);
  Plan swept = SweepUnmerged(request, fine, may_be_whole, plan);
  const bool is_proven = swept.status == PlanStatus::kOptimal;
  if (swept.cost() >= plan.cost()) {
    if (is_proven) {
      plan.status = PlanStatus::kOptimal;
      plan.SetLowerBound(plan.cost());
    }
    return plan;
  }
  if (is_proven) {
    TellRelease(request, plan, swept);
    return swept;
  }
  const CoarseGraph some = ClassesReleasing(request, fine, swept, may_be_whole);
  // The sweep may have split equal operators of a class in different, equally good ways.
  if (!CutsAlike(some, swept)) return plan;
  Plan released = DecideReleased(request, some, may_be_whole, swept, known);
  TellRelease(request, plan, released);
  return released.cost() < plan.cost() ? released : plan;
}

Plan SweepReleased(const PlanRequest& request, const CoarseGraph& merged,
                   bool may_be_whole, Plan plan) {
  if (!MayRelease(request, merged, plan)) return plan;
  const CoarseGraph fine = UnmergedClasses(request, may_be_whole);
  Plan swept = SweepUnmerged(request, fine, may_be_whole, plan);
  return swept.cost() < plan.cost() ? swept : plan;
}

CoarseGraph ClassesWithin(const PlanRequest& request, const CoarseGraph& merged,
                          bool may_be_whole, const Plan& unlimited) {
  if (HasTimesteps(merged) || CutsAlike(merged, unlimited)) return merged;
  CoarseGraph some = ClassesReleasing(request, UnmergedClasses(request, may_be_whole),
                                      unlimited, may_be_whole);
  return CutsAlike(some, unlimited) ? some : merged;
}

Plan ReleaseAgain(const PlanRequest& request, bool may_be_whole, const Plan& plan,
                  KnownProfiles* known) {
  const CoarseGraph fine = UnmergedClasses(request, may_be_whole);
  Plan swept = SweepUnmerged(request, fine, may_be_whole, plan);
  if (swept.status == PlanStatus::kOptimal) return swept;
  const CoarseGraph some = ClassesReleasing(request, fine, swept, may_be_whole);
  if (!CutsAlike(some, swept)) return swept;
  return DecideReleased(request, some, may_be_whole, swept, known);
}

}  // namespace tofu
