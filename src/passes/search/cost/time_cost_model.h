// The objective "time" (cost_model.h): counts the nanoseconds of a training step on a
// machine, for each operator's part and each fetch (time_cost.h).
#ifndef TOFU_PASSES_SEARCH_COST_TIME_COST_MODEL_H_
#define TOFU_PASSES_SEARCH_COST_TIME_COST_MODEL_H_

#include <cstdint>
#include <vector>

#include "passes/search/cost/cost_model.h"

namespace tofu {

class TimeCostModel : public CostModel {
 public:
  TimeCostModel(const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
                const TimeModel& machine, const std::vector<int>& parts);

  const char* name() const override { return "time"; }
  const char* unit() const override { return "ns"; }
  bool CountsOperators() const override { return true; }
  bool MayOverlap(const OpSlot& slot) const override { return time_.MayOverlap(slot); }
  bool HasRoutes() const override { return time_.HasRoutes(); }
  GroupTiles TilesByStep(const Shape& shape, const Cuts& cuts) const override;
  TimedSplit SplitByStep(int node, const Cuts& cuts) const override;
  TimedSplit SplitOfPattern(int node, const OperatorRegions& regions,
                            const Cuts& cuts) const override;
  int64_t OperatorCost(const TimedSplit& split) const override;
  int64_t SlotCost(int node, const OpSlot& slot, const CutOperator& split,
                   const CutTensor& tensor) const override;
  int64_t LeastSlotCost(const OpSlot& slot, int64_t least_bytes,
                        const TimedSplit& split) const override;
  int64_t ElementwiseCost(int op_class, const Cuts& tensor_cuts,
                          bool is_pattern) const override;
  int64_t ClassCost(const ClassCuts& cuts, int op_class) const override;
  int64_t PlanCost(const ClassCuts& cuts) const override;
  void Describe(const ClassCuts& cuts, Plan* plan) const override;

 private:
  const Graph& graph_;
  const StrategyTable& table_;
  const CoarseGraph& coarse_;
  const TimeModel& machine_;
  const std::vector<int> parts_;
  const TimeCost time_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_COST_TIME_COST_MODEL_H_
