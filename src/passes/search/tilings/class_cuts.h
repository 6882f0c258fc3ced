// The decisions of a plan, or of a search, for each class of tensors and operators.
//
// Errors:     UserError(kPlan) for a plan that cuts the members of one class
//             differently.
// Complexity: O(N + E), N nodes, E edges, times the steps.
#ifndef TOFU_PASSES_SEARCH_TILINGS_CLASS_CUTS_H_
#define TOFU_PASSES_SEARCH_TILINGS_CLASS_CUTS_H_

#include <vector>

#include "graph/cuts.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"

namespace tofu {

// The cuts of every class; kFree at steps that a search decides.
struct ClassCuts {
  std::vector<Cuts> tensors;    // [tensor class]
  std::vector<Cuts> operators;  // [operator class]; element-wise: those of its tensors
};

// Whether the plan cuts the members of every class alike.
bool CutsAlike(const CoarseGraph& coarse, const Plan& plan);

// The fewest classes whose members the plan cuts alike: those of the search, unless it
// released operators or timesteps that they merge.
CoarseGraph ClassesOf(const Graph& graph, const StrategyTable& table, const Plan& plan);

ClassCuts ClassCutsOf(const Graph& graph, const CoarseGraph& coarse, const Plan& plan);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_TILINGS_CLASS_CUTS_H_
