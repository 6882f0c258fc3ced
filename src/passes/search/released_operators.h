// Finds the element-wise operators whose tensors should be cut differently.
//
// Coarsening cuts all tensors of an element-wise operator alike. If some operators read a
// tensor by rows, and others its activation by columns, one conversion between the two is
// cheaper than many fetches. That pays for few operators of a network; a plan of unmerged
// classes shows which.
//
// Input:      a graph, its table, classes in which nothing is merged and a plan of them.
// Output:     [node]: the element-wise operators whose tensors the plan cuts differently,
//             and all operators of the same signatures; empty if there are none.
// Errors:     none.
// Position:   between two searches (make_plan.h).
// Complexity: O(N + E), N nodes, E edges, times the steps.
#ifndef TOFU_PASSES_SEARCH_RELEASED_OPERATORS_H_
#define TOFU_PASSES_SEARCH_RELEASED_OPERATORS_H_

#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"

namespace tofu {

std::vector<bool> OperatorsToRelease(const Graph& graph, const StrategyTable& table,
                                     const CoarseGraph& fine, const Plan& plan);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RELEASED_OPERATORS_H_
