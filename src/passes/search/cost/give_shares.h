// Gives a plan's cuts other shares: for devices of unlike speed or memory, or for bounds
// on multiples (docs/design/0021).
//
// Input:      a plan, and the shares of its steps' parts.
// Output:     the plan with these shares. Bytes are counted anew; with a model also the
//             predicted time, the routes and, if time was the objective, the cost.
//             Without a model, the plan loses its routes. It loses bounds and proofs,
//             which hold for equal tiles.
// Errors:     UserError(kPlan) for shares that do not fit the plan's steps.
// Position:   after a search.
// Complexity: a count of all operators (plan_bytes.h, predict.h).
#ifndef TOFU_PASSES_SEARCH_COST_GIVE_SHARES_H_
#define TOFU_PASSES_SEARCH_COST_GIVE_SHARES_H_

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/search/cost/time_cost.h"

namespace tofu {

// `model`: null predicts no time.
Plan GiveShares(const Graph& graph, const StrategyTable& table, Plan plan,
                TileShares shares, const TimeModel* model);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_COST_GIVE_SHARES_H_
