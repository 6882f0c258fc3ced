#include "passes/search/released_operators.h"

#include <algorithm>
#include <set>

#include "passes/coarsen/elementwise.h"

namespace tofu {
namespace {

bool CutsAlike(const CoarseGraph& fine, const OpClass& op, const Plan& plan) {
  const auto cuts = [&](const OpSlot& slot) {
    return plan.tensor_cuts[fine.tensors[slot.tensor_class].entries[0]];
  };
  return std::all_of(op.slots.begin(), op.slots.end(),
                     [&](const OpSlot& slot) { return cuts(slot) == cuts(op.slots[0]); });
}

}  // namespace

std::vector<bool> OperatorsToRelease(const Graph& graph, const StrategyTable& table,
                                     const CoarseGraph& fine, const Plan& plan) {
  std::set<int> signatures;
  for (const OpClass& op : fine.operators) {
    if (IsElementwise(graph, table, op.nodes[0]) && !CutsAlike(fine, op, plan)) {
      signatures.insert(op.signature);
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
