#include "passes/search/fit_limit.h"

#include <algorithm>
#include <utility>

#include "passes/search/class_cuts.h"
#include "passes/search/memory_limit.h"
#include "passes/search/recursive_search.h"

namespace tofu {

int64_t PeakTileBytes(const PlanRequest& request, const CoarseGraph& coarse,
                      const Plan& plan) {
  return LimitMemory(request.graph, request.table, coarse, 0)
      .PeakBytes(ClassCutsOf(request.graph, coarse, plan).tensors, plan.parts);
}

Plan FitLimit(const PlanRequest& request, const CoarseGraph& merged, bool may_be_whole,
              const Plan* start) {
  const MemoryLimit memory = LimitMemory(request.graph, request.table, merged,
                                         request.options.memory_limit_bytes);
  const auto fits = [&](const Plan& plan) {
    return memory.PeakBytes(ClassCutsOf(request.graph, merged, plan).tensors,
                            plan.parts) <= memory.limit_bytes;
  };
  const auto search = [&](const Plan* from, bool whole, const MemoryLimit* limit) {
    RecursiveOptions options = OptionsOf(request, merged, from, whole);
    options.memory = limit;
    return SearchRecursively(request.graph, request.table, merged, options);
  };
  if (start != nullptr) {
    Plan improved = search(start, may_be_whole, nullptr);
    return fits(improved) ? improved : search(start, may_be_whole, &memory);
  }
  Plan any = search(nullptr, may_be_whole, nullptr);
  if (fits(any)) return any;
  const Plan cut = may_be_whole ? search(nullptr, false, nullptr) : any;
  Plan plan = search(&cut, may_be_whole, &memory);
  if (any.parts == plan.parts && fits(plan)) {
    plan.SetLowerBound(std::max(plan.lower_bound(), any.lower_bound()));
  }
  return plan;
}

}  // namespace tofu
