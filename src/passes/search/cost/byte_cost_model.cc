#include "passes/search/cost/byte_cost_model.h"

#include <utility>

#include "passes/search/cost/plan_bytes.h"
#include "passes/search/cost/slot_bytes.h"

namespace tofu {

ByteCostModel::ByteCostModel(const Graph& graph, const StrategyTable& table,
                             const CoarseGraph& coarse, std::vector<int> parts)
    : graph_(graph), table_(table), coarse_(coarse), parts_(std::move(parts)) {}

int64_t ByteCostModel::SlotCost(int node, const OpSlot& slot, const CutOperator& split,
                                const CutTensor& tensor) const {
  return SlotBytes(graph_, node, split.regions, slot, tensor.tiles);
}

int64_t ByteCostModel::LeastSlotCost(const OpSlot&, int64_t least_bytes,
                                     const TimedSplit&) const {
  return least_bytes;
}

// An operator that is split like its tensors fetches nothing, unless it is random
// and some step leaves it whole. The order of steps does not matter.
int64_t ByteCostModel::ElementwiseCost(int op_class, const Cuts& tensor_cuts,
                                       bool) const {
  const OpClass& op = coarse_.operators[op_class];
  const int node = op.nodes[0];
  const StrategyRow& row = *table_.row(node);
  if (!row.random) return 0;
  const OperatorRegions regions(graph_, table_, node, ElementwiseCuts(row, tensor_cuts),
                                parts_);
  const GroupBoxes tiles =
      TileBoxes(coarse_.tensors[op.slots[0].tensor_class].shape, tensor_cuts, parts_);
  int64_t bytes = 0;
  for (const OpSlot& slot : op.slots) {
    bytes += SlotBytes(graph_, node, regions, slot, tiles);
  }
  return bytes * static_cast<int64_t>(op.nodes.size());
}

int64_t ByteCostModel::ClassCost(const ClassCuts& cuts, int op_class) const {
  return ClassBytes(graph_, table_, coarse_, cuts, op_class, parts_.size(), parts_) *
         static_cast<int64_t>(coarse_.operators[op_class].nodes.size());
}

int64_t ByteCostModel::PlanCost(const ClassCuts& cuts) const {
  return CountPlanBytes(graph_, table_, coarse_, cuts, parts_);
}

}  // namespace tofu
