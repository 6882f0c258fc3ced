// Finds which dimension of every tensor is the batch, and along which variable
// every operator iterates over it. The mode "data-parallel" needs nothing else.
//
// Rule:       dimension 0 of the graph's data, labels and head gradients is the
//             batch. An operator iterates over it along the variable that leads
//             the index of such a dimension of an input (the b of 8 * b + t); an
//             output has it where that variable leads.
// Output:     BatchDimensions; -1 where there is none.
// Errors:     none.
// Position:   after the graph is read; only the mode "data-parallel" uses it.
// Complexity: O(N + E), N nodes, E edges.
#ifndef TOFU_PASSES_SEARCH_TILINGS_BATCH_DIMENSION_H_
#define TOFU_PASSES_SEARCH_TILINGS_BATCH_DIMENSION_H_

#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

struct BatchDimensions {
  std::vector<int> tensors;    // [entry]: dimension
  std::vector<int> operators;  // [node]: variable, one that it can be split along
};

// The variable with the largest coefficient in an access of the row without a divisor,
// such as the b of 8 * b + t; -1 if there is none. A variable of one value leads nothing,
// such as the r of 16 * r + b where a tensor of one row becomes a vector.
int LeadingVar(const StrategyRow& row, const DimAccess& access);

BatchDimensions FindBatch(const Graph& graph, const StrategyTable& table);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_TILINGS_BATCH_DIMENSION_H_
