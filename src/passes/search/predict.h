// Predicts the time of a training step under a plan: the sum of what its operators take
// (time_cost.h), as the search for time counts it.
//
// Input:      a graph, its table and a plan; the machine and the operators' work.
// Output:     the time by what it is spent on, and the bytes that cross each level of
//             links.
// Errors:     UserError(kPlan) for a plan that cuts the members of one class differently.
// Position:   at the end of a search for time; and of any plan, to compare it.
// Complexity: one cost of time_cost.h for every slot of every class of operators.
#ifndef TOFU_PASSES_SEARCH_PREDICT_H_
#define TOFU_PASSES_SEARCH_PREDICT_H_

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/step_search.h"
#include "passes/search/time_cost.h"

namespace tofu {

PredictedTime PredictTime(const Graph& graph, const StrategyTable& table,
                          const Plan& plan, const TimeModel& model);

// The same for classes and their cuts.
PredictedTime PredictClasses(const Graph& graph, const StrategyTable& table,
                             const CoarseGraph& coarse, const ClassCuts& cuts,
                             const std::vector<int>& parts, const TimeModel& model);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_PREDICT_H_
