// The ways in which a graph calls its operators: what MXNet has to be asked about it,
// of thousands of nodes a few hundred things.
//
// Input:      a graph with shapes and dtypes.
// Output:     JSON, docs/formats.md, "Operator uses".
// Errors:     none.
// Position:   before executor_memory, whose table is made from the answers.
// Complexity: linear in nodes and edges, but for a lookup of each node's attributes.
#ifndef TOFU_PASSES_MEMORY_OPERATOR_USES_H_
#define TOFU_PASSES_MEMORY_OPERATOR_USES_H_

#include <string>

#include "graph/graph.h"

namespace tofu {

std::string OperatorUses(const Graph& graph);

}  // namespace tofu

#endif  // TOFU_PASSES_MEMORY_OPERATOR_USES_H_
