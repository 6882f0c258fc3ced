// What makes an operator element-wise: all its tensors have one shape and each
// is touched exactly at the output's index (paper section 5.1, "Merging
// consecutive element-wise operators"). The row's flag is checked against its
// accesses, so a wrong table cannot tie tensors that do not belong together.
#ifndef TOFU_PASSES_COARSEN_ELEMENTWISE_H_
#define TOFU_PASSES_COARSEN_ELEMENTWISE_H_

#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

bool IsElementwise(const Graph& graph, const StrategyTable& table, int node);

// Per dimension of an element-wise operator's tensors: the variable that runs
// along it.
std::vector<int> DimensionVars(const StrategyRow& row);

}  // namespace tofu

#endif  // TOFU_PASSES_COARSEN_ELEMENTWISE_H_
