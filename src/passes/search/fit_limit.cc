#include "passes/search/fit_limit.h"

#include <algorithm>
#include <utility>

#include "passes/search/recursion/recursive_search.h"
#include "passes/search/tilings/class_cuts.h"
#include "passes/search/tilings/memory_limit.h"

namespace tofu {
namespace {

bool Fits(const PlanRequest& request, const CoarseGraph& coarse, const Plan& plan) {
  return PeakTileBytes(request, coarse, plan) <= request.options.memory_limit_bytes;
}

// Searches plans of these classes, from `start` if there is one, within the limit or not.
Plan SearchFrom(const PlanRequest& request, const CoarseGraph& coarse, bool may_be_whole,
                const Plan* start, bool is_within) {
  const MemoryLimit memory = LimitMemory(request.graph, request.table, coarse,
                                         request.options.memory_limit_bytes);
  RecursiveOptions options = OptionsOf(request, coarse, start, may_be_whole);
  if (is_within) options.memory = &memory;
  return SearchRecursively(request.graph, request.table, coarse, options);
}

}  // namespace

int64_t PeakTileBytes(const PlanRequest& request, const CoarseGraph& coarse,
                      const Plan& plan) {
  return LimitMemory(request.graph, request.table, coarse, 0)
      .PeakBytes(ClassCutsOf(request.graph, coarse, plan).tensors, plan.parts);
}

Plan FitLimit(const PlanRequest& request, const CoarseGraph& coarse, bool may_be_whole,
              const Plan& unlimited) {
  Plan any = CutsAlike(coarse, unlimited)
                 ? unlimited
                 : SearchFrom(request, coarse, may_be_whole, nullptr, false);
  if (Fits(request, coarse, any)) return any;
  const Plan cut =
      may_be_whole ? SearchFrom(request, coarse, false, nullptr, false) : any;
  Plan plan = SearchFrom(request, coarse, may_be_whole, &cut, true);
  if (any.parts == plan.parts && Fits(request, coarse, plan)) {
    plan.SetLowerBound(std::max(plan.lower_bound(), any.lower_bound()));
  }
  return plan;
}

Plan ImproveWithin(const PlanRequest& request, const CoarseGraph& coarse,
                   bool may_be_whole, const Plan& start) {
  Plan improved = SearchFrom(request, coarse, may_be_whole, &start, false);
  if (Fits(request, coarse, improved)) return improved;
  return SearchFrom(request, coarse, may_be_whole, &start, true);
}

}  // namespace tofu
