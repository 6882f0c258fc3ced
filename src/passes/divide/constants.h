// Finds constants, which are made where they are read instead of fetched.
//
// A part of an operator is a constant if it depends on nothing but its extents: the
// operator has no inputs, draws no random numbers, and of its attributes only the shape
// changes when it is split.
//
// Input:      the serial graph and its strategy table.
// Output:     whether parts of an output are constants.
// Errors:     none.
// Complexity: O(rank).
#ifndef TOFU_PASSES_DIVIDE_CONSTANTS_H_
#define TOFU_PASSES_DIVIDE_CONSTANTS_H_

#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

// Whether parts of the output are constants along these dimensions, in whatever pieces.
bool IsConstantAlong(const Graph& graph, const StrategyTable& table, NodeEntry output,
                     const std::vector<int>& dims);

}  // namespace tofu

#endif  // TOFU_PASSES_DIVIDE_CONSTANTS_H_
