// Searches the plans that trade cost against the memory of a worker's tiles.
//
// Input:      a graph, its table and options of mode "tofu" without a limit. Tensors may
//             stay whole whatever the options say.
// Output:     the plans that no other plan found beats in both.
// Errors:     UserError(kPlan) for invalid options.
// Position:   next to make_plan.h, with the same first stages.
// Complexity: that of fit_limit.h for each of at most `max_searches` limits
//             (explore_limits.h), all within the time limit.
#ifndef TOFU_PASSES_SEARCH_MAKE_FRONTIER_H_
#define TOFU_PASSES_SEARCH_MAKE_FRONTIER_H_

#include <cstdint>
#include <vector>

#include "passes/search/plan_request.h"

namespace tofu {

// The plans that no other plan found beats in both cost and memory, by ascending memory.
struct PlanFrontier {
  std::vector<Plan> plans;
  std::vector<int64_t> tile_bytes;  // [plan]: the peak of a worker's tiles
  // Whether no plan is missing, and each has the proven least cost. If not, a plan that
  // takes at most tile_bytes[i] costs at least plans[i].lower_bound().
  bool is_complete = false;
};

PlanFrontier MakeFrontier(const Graph& graph, const StrategyTable& table,
                          const PlanOptions& options, int max_searches,
                          const ProgressCallback& on_progress = nullptr);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_MAKE_FRONTIER_H_
