// The ways in which a graph calls its operators: of thousands of nodes a few
// hundred questions that must be put to whoever runs them.
//
// Input:      a graph with shapes and dtypes, its nodes placed on workers.
// Output:     nodes of one operator with equal attributes and as many inputs are
//             one way, for which the largest of them stands.
// Errors:     none.
// Position:   before executor_memory.h, whose rules are the answers.
// Complexity: linear in nodes and edges, with a lookup of each node's attributes.
#ifndef TOFU_PASSES_MEMORY_OPERATOR_USES_H_
#define TOFU_PASSES_MEMORY_OPERATOR_USES_H_

#include <set>
#include <vector>

#include "graph/graph.h"

namespace tofu {

struct OperatorUses {
  std::vector<int> node_uses;  // [node]: index of its way; -1 for a variable
  std::vector<int> nodes;      // [way]: the node that stands for it
};

OperatorUses FindOperatorUses(const Graph& graph);

// Whether an attribute is the operator's, and not about the node ("__ctx_group__").
bool IsOperatorAttr(const std::string& name);

// Shapes of what nodes read from nodes of other workers, each once.
std::set<Shape> CrossingShapes(const Graph& graph);

}  // namespace tofu

#endif  // TOFU_PASSES_MEMORY_OPERATOR_USES_H_
