// Defines what a search minimises. Nothing else tells objectives apart.
//
// The cost of a plan is a sum over its operators: a cost of each operator by itself, and
// one of each slot, a tensor that it reads or produces. A model counts both, and bounds a
// slot's cost where only patterns are chosen (patterns.h). The search compares sums and
// nothing else, so another objective is another class here (docs/architecture.md).
//
// Input:      the classes of a graph and the parts of all steps, fixed for one model.
// Output:     integer costs, in `unit()`; sums of them stay below 2^62.
// Invariants: a bound is at most the cost of any cuts with its patterns; equal operators
//             with equal cuts have equal costs.
// Errors:     UserError(kPlan) for an objective that does not exist.
// Position:   search_tables.h caches what it counts; recursive_search.h asks it what a
//             plan costs.
#ifndef TOFU_PASSES_SEARCH_COST_COST_MODEL_H_
#define TOFU_PASSES_SEARCH_COST_COST_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/cuts.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/cost/cost.h"
#include "passes/search/cost/time_cost.h"
#include "passes/search/tilings/class_cuts.h"

namespace tofu {

// Names the model to use. It is copied freely; `machine` must outlive the search.
struct Objective {
  std::string name;                    // empty: "time" with a machine, else "bytes"
  const TimeModel* machine = nullptr;  // "time" needs it
};

// The tiles of a tensor with some cuts.
struct CutTensor {
  const GroupBoxes& tiles;
  const GroupTiles& by_step;  // CostModel::TilesByStep
};

// The regions of an operator with some cuts.
struct CutOperator {
  const OperatorRegions& regions;
  const TimedSplit& by_step;  // CostModel::SplitByStep
};

class CostModel {
 public:
  virtual ~CostModel() = default;

  virtual const char* name() const = 0;
  virtual const char* unit() const = 0;  // "bytes", "ns"

  // Whether operators also cost something by themselves, less the more they are split. If
  // they do not, no step can save costs of an earlier one, whole operators would seem
  // free, and element-wise operators whose tensors are cut alike cost nothing.
  virtual bool CountsOperators() const { return false; }
  // Whether computation may hide fetches of the slot: then slots of equal operators may
  // differ in cost.
  virtual bool MayOverlap(const OpSlot&) const { return false; }
  // Whether workers may add up some terms of a sum on the way to its tiles (routes.h).
  virtual bool HasRoutes() const { return false; }

  // Inputs of SlotCost() besides the boxes after all steps; empty by default.
  virtual GroupTiles TilesByStep(const Shape&, const Cuts&) const { return {}; }
  virtual TimedSplit SplitByStep(int /*node*/, const Cuts&) const { return {}; }
  virtual TimedSplit SplitOfPattern(int /*node*/, const OperatorRegions&,
                                    const Cuts&) const {
    return {};
  }

  // The cost of one operator without its slots.
  virtual int64_t OperatorCost(const TimedSplit&) const { return 0; }
  virtual int64_t SlotCost(int node, const OpSlot& slot, const CutOperator& split,
                           const CutTensor& tensor) const = 0;
  // Bounds the cost of a slot for which workers fetch at least `least_bytes`.
  virtual int64_t LeastSlotCost(const OpSlot& slot, int64_t least_bytes,
                                const TimedSplit& split) const = 0;
  // The cost of an element-wise class whose tensors all have these cuts, or this pattern.
  virtual int64_t ElementwiseCost(int op_class, const Cuts& tensor_cuts,
                                  bool is_pattern) const = 0;

  // The cost of all operators of a class.
  virtual int64_t ClassCost(const ClassCuts& cuts, int op_class) const = 0;
  virtual int64_t PlanCost(const ClassCuts& cuts) const = 0;

  // Sets the plan's objective and prediction, except the bound.
  virtual void Describe(const ClassCuts& cuts, Plan* plan) const = 0;
};

std::unique_ptr<const CostModel> MakeCostModel(const Objective& objective,
                                               const Graph& graph,
                                               const StrategyTable& table,
                                               const CoarseGraph& coarse,
                                               const std::vector<int>& parts);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_COST_COST_MODEL_H_
