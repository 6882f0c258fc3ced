// A plan's decisions for each class of tensors and operators.
//
// Errors:     UserError(kPlan) for a plan that cuts the members of one class
//             differently.
// Complexity: O(N + E), N nodes, E edges, times the steps.
#ifndef TOFU_PASSES_SEARCH_CLASS_CUTS_H_
#define TOFU_PASSES_SEARCH_CLASS_CUTS_H_

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/step_search.h"

namespace tofu {

// Whether the plan cuts the members of every class alike.
bool CutsAlike(const CoarseGraph& coarse, const Plan& plan);

// The fewest classes whose members the plan cuts alike: those of the search, unless it
// released some of what they merge.
CoarseGraph ClassesOf(const Graph& graph, const StrategyTable& table, const Plan& plan);

ClassCuts ClassCutsOf(const Graph& graph, const CoarseGraph& coarse, const Plan& plan);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_CLASS_CUTS_H_
