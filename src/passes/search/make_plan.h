// Turns a training graph into its plan: the paper's sections 5.1 and 5.2 as a sequence
// of passes.
//
// Stages, each of which takes a plan and returns one that costs no more:
//   1. recursive_search     the plan of the merged classes (coalesce.h); within a memory
//                           limit: fit_limit, and nothing after it
//   2. release_timesteps    decides merged timesteps of unrolled networks one by one
//   3. release_elementwise  decides again the element-wise operators for which that pays
//   4. allow_whole          if tensors may stay whole: searches from the plan in which
//                           none may
//
// Errors: UserError(kPlan) for invalid options, and for a memory limit in which no plan
//         was found.
#ifndef TOFU_PASSES_SEARCH_MAKE_PLAN_H_
#define TOFU_PASSES_SEARCH_MAKE_PLAN_H_

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/search/plan_request.h"
#include "passes/search/recursion/progress.h"

namespace tofu {

Plan MakePlan(const Graph& graph, const StrategyTable& table, const PlanOptions& options,
              const PassCallback& on_pass = nullptr,
              const ProgressCallback& on_progress = nullptr);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_MAKE_PLAN_H_
