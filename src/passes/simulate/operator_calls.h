// Finds the different calls of operators in a graph: thousands of nodes make a few
// hundred calls, and only their work must be counted.
//
// Input:      a graph with shapes and dtypes.
// Output:     nodes with the same operator, attributes, shapes and dtypes make the same
//             call. Fetches and copies between workers make none: the simulator models
//             them itself.
// Errors:     none.
// Position:   before operations.h, which needs the work of every call.
// Complexity: linear in nodes and edges, with a lookup of each node's text.
#ifndef TOFU_PASSES_SIMULATE_OPERATOR_CALLS_H_
#define TOFU_PASSES_SIMULATE_OPERATOR_CALLS_H_

#include <vector>

#include "graph/graph.h"

namespace tofu {

struct OperatorCalls {
  std::vector<int> node_calls;  // [node]: number of its call, or -1
  std::vector<int> nodes;       // [call]: the first node that makes it
};

OperatorCalls FindOperatorCalls(const Graph& graph);

}  // namespace tofu

#endif  // TOFU_PASSES_SIMULATE_OPERATOR_CALLS_H_
