// The objective "bytes" (cost_model.h): counts the bytes that all workers fetch.
#ifndef TOFU_PASSES_SEARCH_COST_BYTE_COST_MODEL_H_
#define TOFU_PASSES_SEARCH_COST_BYTE_COST_MODEL_H_

#include <cstdint>
#include <vector>

#include "passes/search/cost/cost_model.h"

namespace tofu {

class ByteCostModel : public CostModel {
 public:
  ByteCostModel(const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
                std::vector<int> parts);

  const char* name() const override { return "bytes"; }
  const char* unit() const override { return "bytes"; }
  int64_t SlotCost(int node, const OpSlot& slot, const CutOperator& split,
                   const CutTensor& tensor) const override;
  int64_t LeastSlotCost(const OpSlot& slot, int64_t least_bytes,
                        const TimedSplit& split) const override;
  int64_t ElementwiseCost(int op_class, const Cuts& tensor_cuts,
                          bool is_pattern) const override;
  int64_t ClassCost(const ClassCuts& cuts, int op_class) const override;
  int64_t PlanCost(const ClassCuts& cuts) const override;
  void Describe(const ClassCuts&, Plan*) const override {}

 private:
  const Graph& graph_;
  const StrategyTable& table_;
  const CoarseGraph& coarse_;
  const std::vector<int> parts_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_COST_BYTE_COST_MODEL_H_
