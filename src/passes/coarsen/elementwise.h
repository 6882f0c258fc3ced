// Tells whether an operator is element-wise: all its tensors have one shape, and
// each is touched exactly at the output's index (paper section 5.1, "Merging
// consecutive element-wise operators"). It checks the row's flag against its
// accesses, so a wrong table cannot tie unrelated tensors.
#ifndef TOFU_PASSES_COARSEN_ELEMENTWISE_H_
#define TOFU_PASSES_COARSEN_ELEMENTWISE_H_

#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

bool IsElementwise(const Graph& graph, const StrategyTable& table, int node);

// The variable that runs along each dimension of an element-wise operator's
// tensors.
std::vector<int> DimensionVars(const StrategyRow& row);

}  // namespace tofu

#endif  // TOFU_PASSES_COARSEN_ELEMENTWISE_H_
