#include "passes/search/cost/time_cost_model.h"

#include <utility>

#include "passes/search/cost/predict.h"
#include "passes/search/cost/slot_bytes.h"

namespace tofu {

TimeCostModel::TimeCostModel(const Graph& graph, const StrategyTable& table,
                             const CoarseGraph& coarse, const TimeModel& machine,
                             const std::vector<int>& parts)
    : graph_(graph),
      table_(table),
      coarse_(coarse),
      machine_(machine),
      parts_(parts),
      time_(graph, table, machine, parts) {}

GroupTiles TimeCostModel::TilesByStep(const Shape& shape, const Cuts& cuts) const {
  return time_.Tiles(shape, cuts);
}

TimedSplit TimeCostModel::SplitByStep(int node, const Cuts& cuts) const {
  return time_.Split(node, cuts);
}

TimedSplit TimeCostModel::SplitOfPattern(int node, const OperatorRegions& regions,
                                         const Cuts& cuts) const {
  TimedSplit split;
  split.compute_s = time_.ComputeSeconds(node, regions, cuts);
  return split;
}

int64_t TimeCostModel::OperatorCost(const TimedSplit& split) const {
  return Nanoseconds(split.compute_s + time_.host_s());
}

int64_t TimeCostModel::SlotCost(int node, const OpSlot& slot, const CutOperator& split,
                                const CutTensor& tensor) const {
  return Nanoseconds(time_.Fetch(node, slot, split.by_step, tensor.by_step).Counted());
}

int64_t TimeCostModel::LeastSlotCost(const OpSlot& slot, int64_t least_bytes,
                                     const TimedSplit& split) const {
  return time_.LeastFetchNs(slot, least_bytes, split.compute_s);
}

// The operators of a class differ, unless they draw random numbers (coalesce.h). The cost
// of a pattern is a bound: it leaves out fetches.
int64_t TimeCostModel::ElementwiseCost(int op_class, const Cuts& tensor_cuts,
                                       bool is_pattern) const {
  const OpClass& op = coarse_.operators[op_class];
  int64_t ns = 0;
  for (int node : op.nodes) {
    ns += Nanoseconds(time_.ElementwiseSeconds(node, tensor_cuts) + time_.host_s());
  }
  const int node = op.nodes[0];
  const StrategyRow& row = *table_.row(node);
  if (!row.random || is_pattern || op.slots.empty()) return ns;
  const TimedSplit split = time_.Split(node, ElementwiseCuts(row, tensor_cuts));
  const GroupTiles tiles = time_.Tiles(coarse_.tensors[op.follows].shape, tensor_cuts);
  for (const OpSlot& slot : op.slots) {
    ns += Nanoseconds(time_.Fetch(node, slot, split, tiles).Counted()) *
          static_cast<int64_t>(op.nodes.size());
  }
  return ns;
}

int64_t TimeCostModel::ClassCost(const ClassCuts& cuts, int op_class) const {
  return PredictOperators(table_, coarse_, cuts, static_cast<size_t>(op_class), time_);
}

int64_t TimeCostModel::PlanCost(const ClassCuts& cuts) const {
  int64_t ns = 0;
  for (int p = 0; p < static_cast<int>(coarse_.operators.size()); ++p) {
    ns += ClassCost(cuts, p);
  }
  return ns;
}

void TimeCostModel::Describe(const ClassCuts& cuts, Plan* plan) const {
  Prediction prediction = PredictClasses(graph_, table_, coarse_, cuts, parts_, machine_);
  prediction.time.lower_bound_ns = 0;
  plan->objective = PlanObjective{name(), unit(), prediction.time.step_ns};
  plan->predicted = std::move(prediction.time);
  plan->routes = std::move(prediction.routes);
  plan->output_routes = std::move(prediction.output_routes);
}

}  // namespace tofu
