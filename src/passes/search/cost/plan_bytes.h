// Counts the bytes of all operators under the cuts of their classes. Equal operators with
// equal cuts are counted once.
//
// Errors:     none.
// Position:   at the end of every search, whatever its objective.
// Complexity: one count of slot_bytes.h for each different operator, cuts and step.
#ifndef TOFU_PASSES_SEARCH_COST_PLAN_BYTES_H_
#define TOFU_PASSES_SEARCH_COST_PLAN_BYTES_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/tilings/class_cuts.h"

namespace tofu {

// The bytes that all operators fetch, over all steps.
int64_t CountPlanBytes(const Graph& graph, const StrategyTable& table,
                       const CoarseGraph& coarse, const ClassCuts& cuts,
                       const Division& parts);

// Sets the bytes of every step and node of the plan, whose parts and shares are set.
void SetPlanBytes(const Graph& graph, const StrategyTable& table,
                  const CoarseGraph& coarse, const ClassCuts& cuts, Plan* plan);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_COST_PLAN_BYTES_H_
