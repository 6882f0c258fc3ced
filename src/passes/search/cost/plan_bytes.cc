#include "passes/search/cost/plan_bytes.h"

#include <cstddef>
#include <map>

#include "passes/search/cost/slot_bytes.h"

namespace tofu {
namespace {

// Everything that the bytes of an operator class depend on.
std::vector<int> KeyOf(const OpClass& op, const ClassCuts& cuts, int number) {
  std::vector<int> key = {op.signature};
  if (!op.elementwise) {
    key.insert(key.end(), cuts.operators[number].begin(), cuts.operators[number].end());
  }
  for (const OpSlot& slot : op.slots) {
    const Cuts& of_tensor = cuts.tensors[slot.tensor_class];
    key.insert(key.end(), {slot.is_output ? 1 : 0, slot.index});
    key.insert(key.end(), of_tensor.begin(), of_tensor.end());
  }
  return key;
}

}  // namespace

int64_t CountPlanBytes(const Graph& graph, const StrategyTable& table,
                       const CoarseGraph& coarse, const ClassCuts& cuts,
                       const Division& parts) {
  std::map<std::vector<int>, int64_t> known;
  int64_t sum = 0;
  for (int p = 0; p < static_cast<int>(coarse.operators.size()); ++p) {
    const OpClass& op = coarse.operators[p];
    const auto [found, is_new] = known.try_emplace(KeyOf(op, cuts, p));
    if (is_new) {
      found->second = ClassBytes(graph, table, coarse, cuts, p, parts.size(), parts);
    }
    sum += found->second * static_cast<int64_t>(op.nodes.size());
  }
  return sum;
}

void SetPlanBytes(const Graph& graph, const StrategyTable& table,
                  const CoarseGraph& coarse, const ClassCuts& cuts, Plan* plan) {
  const size_t steps = plan->parts.size();
  plan->node_bytes.assign(graph.nodes.size(), 0);
  plan->step_bytes.assign(steps, 0);
  std::map<std::vector<int>, std::vector<int64_t>> known;  // key -> bytes after each step
  for (int p = 0; p < static_cast<int>(coarse.operators.size()); ++p) {
    const OpClass& op = coarse.operators[p];
    std::vector<int64_t>& bytes = known[KeyOf(op, cuts, p)];
    while (bytes.size() < steps) {
      bytes.push_back(
          ClassBytes(graph, table, coarse, cuts, p, bytes.size() + 1, plan->division()));
    }
    int64_t before = 0;
    for (size_t step = 0; step < steps; ++step) {
      plan->step_bytes[step] +=
          (bytes[step] - before) * static_cast<int64_t>(op.nodes.size());
      before = bytes[step];
    }
    for (int node : op.nodes) plan->node_bytes[node] = before;
  }
}

}  // namespace tofu
