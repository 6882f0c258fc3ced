// Finds the tensors that may wait as terms of a sum: each worker of a step then holds a
// term, and the tensor is their sum (docs/design/0023-sums-that-wait.md).
//
// A weight that several operators use has a gradient that is a sum of as many tensors.
// Each of them is a sum over the workers itself, which need not be reduced before all are
// added up. The gradient of a tensor that several products read is such a sum, too.
//
// Rule:       the walk begins at a parameter's gradient, or at any operator that adds up
//             several such tensors, and goes back through operators that pass terms of
//             all their inputs through (StrategyRow::terms) and reduce nothing. A tensor
//             may wait if one operator of the walk reads it, nothing else does, it has
//             that operator's type, and its operator either reduces it by a sum, or is of
//             the walk and one of its inputs may wait.
// Input:      a training graph, its strategy table, and where sums may wait.
// Output:     WaitingSums; empty if no operator adds up at least two such tensors.
// Errors:     none.
// Position:   before coalesce.h, which keeps such tensors apart from others.
// Complexity: O(N + E), N nodes, E edges.
#ifndef TOFU_PASSES_COARSEN_WAITING_SUMS_H_
#define TOFU_PASSES_COARSEN_WAITING_SUMS_H_

#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

enum class SumsWait { kNever, kInGradients, kAnywhere };  // in parameters' gradients

struct WaitingSums {
  std::vector<bool> entries;  // [entry]: may be terms
  std::vector<bool> nodes;    // [node]: reads such tensors, and passes terms through

  bool MayWait(int entry) const { return !entries.empty() && entries[entry]; }
  bool AddsTerms(int node) const { return !nodes.empty() && nodes[node]; }
};

WaitingSums FindWaitingSums(const Graph& graph, const StrategyTable& table,
                            SumsWait where);

}  // namespace tofu

#endif  // TOFU_PASSES_COARSEN_WAITING_SUMS_H_
