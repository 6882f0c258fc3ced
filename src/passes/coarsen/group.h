// Groups every forward operator with its backward operators, and every forward
// tensor with its gradients (paper section 5.1, "Grouping forward and backward
// operations").
//
// Input:      a training graph and its strategy table. Forward nodes are the
//             ancestors of the heads with the role "output".
// Output:     Groups; the graph is unchanged.
// Rules:      a backward operator belongs to its forward operator, which
//             control_deps[0] names. Without one it belongs to the group that it
//             continues, else to the one that it feeds. An operator that adds up
//             gradients, found by structure, belongs to the tensor; so do
//             optimizer state and update operators. A repeat (recompute.h) and its
//             outputs belong to the operator that it repeats.
// Invariants: the group of a forward operator or tensor is itself.
// Errors:     none; a tensor without a known group gets -1.
// Position:   first, because coalesce aligns the backward operators of
//             timesteps by the groups of their forward operators.
// Complexity: O(N + E), N nodes, E edges.
#ifndef TOFU_PASSES_COARSEN_GROUP_H_
#define TOFU_PASSES_COARSEN_GROUP_H_

#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

struct Groups {
  std::vector<bool> forward;      // [node]
  std::vector<int> op_group;      // [node]: a forward operator, or -1
  std::vector<int> node_tensor;   // [node]: a gradient sum's or update's entry, or -1
  std::vector<int> tensor_group;  // [entry]: a forward entry, or -1
};

Groups GroupForwardBackward(const Graph& graph, const StrategyTable& table);

// The number of the variable called `name`, or -1.
int FindVariable(const Graph& graph, const std::string& name);

}  // namespace tofu

#endif  // TOFU_PASSES_COARSEN_GROUP_H_
