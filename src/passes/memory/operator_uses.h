// Finds the different ways in which a graph calls its operators: thousands of nodes
// use a few hundred ways, and only these must be probed for their in-place rules.
//
// Input:      a graph with shapes and dtypes, its nodes placed on workers.
// Output:     nodes with the same operator, attributes and number of inputs call it in
//             one way; the largest of them represents the way. tofu's own operator
//             (node_names.h), which does not work in place, has no ways.
// Errors:     none.
// Position:   before executor_memory.h, which needs a rule for every way.
// Complexity: linear in nodes and edges, with a lookup of each node's attributes.
#ifndef TOFU_PASSES_MEMORY_OPERATOR_USES_H_
#define TOFU_PASSES_MEMORY_OPERATOR_USES_H_

#include <vector>

#include "graph/graph.h"

namespace tofu {

struct OperatorUses {
  std::vector<int> node_uses;  // [node]: index of its way; -1: none
  std::vector<int> nodes;      // [way]: the node that represents it
};

OperatorUses FindOperatorUses(const Graph& graph);

// Whether an attribute belongs to the operator and not to the node ("__ctx_group__").
bool IsOperatorAttr(const std::string& name);

}  // namespace tofu

#endif  // TOFU_PASSES_MEMORY_OPERATOR_USES_H_
