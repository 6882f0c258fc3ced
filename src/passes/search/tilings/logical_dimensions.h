// Finds the logical dimensions of a graph, as Mesh-TensorFlow names them: the batch, the
// vocabulary, the channels between two layers. Two dimensions of tensors are the same one
// if an operator indexes both by the same variable.
//
// Rule:       a variable that leads the index of a dimension (batch_dimension.h) ties it
//             to every other dimension that it leads in the operator's tensors.
// Input:      a graph, its table and classes.
// Output:     LogicalDimensions, numbered from 0 in the order of tensors.
// Errors:     none.
// Position:   only the mode "mesh-tensorflow" uses it.
// Complexity: O(C * D * a(n)), C classes of operators, D dimensions of their tensors.
#ifndef TOFU_PASSES_SEARCH_TILINGS_LOGICAL_DIMENSIONS_H_
#define TOFU_PASSES_SEARCH_TILINGS_LOGICAL_DIMENSIONS_H_

#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"

namespace tofu {

struct LogicalDimensions {
  int count = 0;
  std::vector<std::vector<int>> tensors;    // [tensor class][dimension]
  std::vector<std::vector<int>> operators;  // [operator class][variable]; -1: not split
};

LogicalDimensions FindLogicalDimensions(const Graph& graph, const StrategyTable& table,
                                        const CoarseGraph& coarse);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_TILINGS_LOGICAL_DIMENSIONS_H_
