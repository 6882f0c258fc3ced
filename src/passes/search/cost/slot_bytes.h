// Counts the bytes that workers fetch for the tensors of an operator.
//
// Errors:     none.
// Position:   used by all cost models and predictions; it knows no objective.
// Complexity: that of cost.h for each slot.
#ifndef TOFU_PASSES_SEARCH_COST_SLOT_BYTES_H_
#define TOFU_PASSES_SEARCH_COST_SLOT_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/cuts.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/cost/cost.h"
#include "passes/search/tilings/class_cuts.h"

namespace tofu {

// The entry at one slot of a node.
NodeEntry SlotEntry(const Graph& graph, int node, const OpSlot& slot);

// The cuts of a node of an element-wise class whose tensors have these cuts.
Cuts ElementwiseCuts(const StrategyRow& row, const Cuts& tensor_cuts);

// The bytes fetched for a slot with these regions if its tensor has these tiles.
int64_t SlotBytes(const Graph& graph, int node, const OperatorRegions& regions,
                  const OpSlot& slot, const GroupBoxes& tiles);

// The bytes of one operator of class `op` after the first `steps` steps.
int64_t ClassBytes(const Graph& graph, const StrategyTable& table,
                   const CoarseGraph& coarse, const ClassCuts& cuts, int op, size_t steps,
                   const Division& parts);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_COST_SLOT_BYTES_H_
