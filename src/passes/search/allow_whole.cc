#include "passes/search/allow_whole.h"

#include <algorithm>
#include <utility>

#include "passes/search/class_cuts.h"
#include "passes/search/fit_limit.h"
#include "passes/search/recursive_search.h"
#include "passes/search/release_elementwise.h"

namespace tofu {
namespace {

// From the plan without whole tensors, with the classes that it needs.
Plan ImproveCut(const PlanRequest& request, const Plan& cut) {
  const CoarseGraph merged = MergedClasses(request, true);
  const bool is_merged = request.options.coarsen && CutsAlike(merged, cut);
  if (is_merged && request.options.memory_limit_bytes > 0) {
    return FitLimit(request, merged, true, &cut);
  }
  if (request.options.coarsen && !is_merged && !HasTimesteps(merged)) {
    return ReleaseAgain(request, merged, true, cut, nullptr);
  }
  const CoarseGraph coarse = is_merged ? merged : UnmergedClasses(request, true);
  return SearchRecursively(request.graph, request.table, coarse,
                           OptionsOf(request, coarse, &cut, true));
}

}  // namespace

Plan AllowWhole(const PlanRequest& request, Plan plan, const Plan& cut) {
  if (cut.cost() >= plan.cost() && cut.parts == plan.parts) return plan;
  Plan improved = ImproveCut(request, cut);
  if (improved.cost() > cut.cost()) {  // its classes cannot express the plan
    const int64_t bound = std::min(improved.lower_bound(), cut.cost());
    improved = cut;
    improved.SetLowerBound(bound);
    improved.status = PlanStatus::kFeasible;
  }
  return improved.cost() < plan.cost() ? improved : plan;
}

}  // namespace tofu
