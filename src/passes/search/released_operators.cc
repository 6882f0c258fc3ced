#include "passes/search/released_operators.h"

#include <algorithm>
#include <set>

#include "passes/coarsen/elementwise.h"

namespace tofu {
namespace {

// Whether all inputs and outputs have the same cuts, unread outputs included: coarsening
// merges them, too.
bool CutsTensorsAlike(const Graph& graph, int node, const Plan& plan) {
  const Node& n = graph.nodes[node];
  const auto& first = plan.tensor_cuts[graph.first_entry[node]];
  for (int i = 1; i < n.num_outputs; ++i) {
    if (plan.tensor_cuts[graph.entry_id({node, i})] != first) return false;
  }
  return std::all_of(n.inputs.begin(), n.inputs.end(), [&](NodeEntry input) {
    return plan.tensor_cuts[graph.entry_id(input)] == first;
  });
}

}  // namespace

std::vector<bool> OperatorsToRelease(const Graph& graph, const StrategyTable& table,
                                     const CoarseGraph& fine, const Plan& plan) {
  std::set<int> signatures;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (IsElementwise(graph, table, node) && !CutsTensorsAlike(graph, node, plan)) {
      signatures.insert(fine.operators[fine.op_class[node]].signature);
    }
  }
  std::vector<bool> released;
  if (signatures.empty()) return released;
  released.assign(graph.nodes.size(), false);
  for (const OpClass& op : fine.operators) {
    if (signatures.count(op.signature) == 0) continue;
    for (int node : op.nodes) released[node] = true;
  }
  return released;
}

}  // namespace tofu
