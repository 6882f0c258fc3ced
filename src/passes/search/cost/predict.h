// Predicts the time of a training step under a plan: the sum of its operators' times
// (time_cost.h), as a search for time counts it.
//
// Input:      a graph, its table and a plan; the machine and the operators' work.
// Output:     the time of operators, fetches and host, the bytes that cross each level of
//             links, and the routes (routes.h).
// Errors:     UserError(kPlan) for a plan that cuts the members of one class differently.
// Position:   at the end of a search for time, or of any plan, to compare it.
// Complexity: one cost of time_cost.h for every slot of every class of operators.
#ifndef TOFU_PASSES_SEARCH_COST_PREDICT_H_
#define TOFU_PASSES_SEARCH_COST_PREDICT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/cost/time_cost.h"
#include "passes/search/tilings/class_cuts.h"

namespace tofu {

struct Prediction {
  PredictedTime time;
  std::vector<Route> routes;
  std::vector<OutputRoute> output_routes;
};

Prediction PredictTime(const Graph& graph, const StrategyTable& table, const Plan& plan,
                       const TimeModel& model);

// The prediction for classes and their cuts.
Prediction PredictClasses(const Graph& graph, const StrategyTable& table,
                          const CoarseGraph& coarse, const ClassCuts& cuts,
                          const std::vector<int>& parts, const TimeModel& model,
                          const TileShares& shares = {});

// The nanoseconds that one class of operators takes.
int64_t PredictOperators(const StrategyTable& table, const CoarseGraph& coarse,
                         const ClassCuts& cuts, size_t number, const TimeCost& time);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_COST_PREDICT_H_
