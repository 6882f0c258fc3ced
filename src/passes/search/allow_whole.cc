#include "passes/search/allow_whole.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "passes/search/fit_limit.h"
#include "passes/search/modes.h"
#include "passes/search/recursion/joint_search.h"
#include "passes/search/recursion/recursive_search.h"
#include "passes/search/release_elementwise.h"
#include "passes/search/tilings/class_cuts.h"

namespace tofu {
namespace {

constexpr size_t kMaxOrders = 6;  // orders of unequal parts whose plans are bounded

// Searches from the plan without whole tensors, with classes that can express it.
Plan ImproveCut(const PlanRequest& request, const Plan& cut) {
  const CoarseGraph merged = MergedClasses(request, true);
  if (request.options.memory_limit_bytes > 0) {
    const CoarseGraph some = ClassesWithin(request, merged, true, cut);
    // Other classes would have to be searched without a limit.
    return CutsAlike(some, cut) ? ImproveWithin(request, some, true, cut) : cut;
  }
  const bool is_merged = request.options.coarsen && CutsAlike(merged, cut);
  if (request.options.coarsen && !is_merged && !HasTimesteps(merged)) {
    return ReleaseAgain(request, true, cut, nullptr);
  }
  const CoarseGraph coarse = is_merged ? merged : UnmergedClasses(request, true);
  return SearchRecursively(request.graph, request.table, coarse,
                           OptionsOf(request, coarse, &cut, true));
}

// The orders of the parts that the stages may try; stops after kMaxOrders + 1 of them.
std::vector<std::vector<int>> OrdersOf(const RecursiveOptions& options) {
  std::vector<int> parts = options.parts;
  if (!options.may_reorder || !IsNothingGiven(options.given)) return {parts};
  std::vector<std::vector<int>> orders;
  std::sort(parts.begin(), parts.end());
  do {
    orders.push_back(parts);
  } while (orders.size() <= kMaxOrders &&
           std::next_permutation(parts.begin(), parts.end()));
  return orders;
}

}  // namespace

bool MayCutCostLess(const PlanRequest& request, const Plan& plan) {
  if (!ImprovesSteps(request.options.mode)) return true;
  const CoarseGraph coarse = UnmergedClasses(request, false);
  const RecursiveOptions options = OptionsOf(request, coarse, nullptr, false);
  const std::vector<std::vector<int>> orders = OrdersOf(options);
  if (orders.size() > kMaxOrders) return true;
  for (const std::vector<int>& parts : orders) {
    PartitionSearcher searcher(request.graph, request.table, coarse, parts,
                               options.restrictions, options.objective);
    SearchOptions search = ProfileSearch(DeadlineOf(request));
    search.top = plan.cost();
    if (searcher.Search(options.given, search).lower_bound < plan.cost()) return true;
  }
  return false;
}

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
