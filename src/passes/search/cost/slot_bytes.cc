#include "passes/search/cost/slot_bytes.h"

#include "graph/box.h"
#include "passes/coarsen/elementwise.h"

namespace tofu {
namespace {

Cuts Prefix(const Cuts& cuts, size_t steps) {
  return Cuts(cuts.begin(), cuts.begin() + static_cast<std::ptrdiff_t>(steps));
}

}  // namespace

NodeEntry SlotEntry(const Graph& graph, int node, const OpSlot& slot) {
  return slot.is_output ? NodeEntry{node, slot.index}
                        : graph.nodes[node].inputs[slot.index];
}

Cuts ElementwiseCuts(const StrategyRow& row, const Cuts& tensor_cuts) {
  const std::vector<int> vars = DimensionVars(row);
  Cuts cuts;
  for (int cut : tensor_cuts) {
    cuts.push_back(IsCut(cut) ? vars[cut] : cut == kTerms ? row.terms : kReplicated);
  }
  return cuts;
}

int64_t SlotBytes(const Graph& graph, int node, const OperatorRegions& regions,
                  const OpSlot& slot, const GroupBoxes& tiles) {
  const int64_t elements = slot.is_output ? regions.OutputElements(slot.index, tiles)
                                          : regions.InputElements(slot.index, tiles);
  return elements * DtypeBytes(graph.dtype(SlotEntry(graph, node, slot)));
}

int64_t ClassBytes(const Graph& graph, const StrategyTable& table,
                   const CoarseGraph& coarse, const ClassCuts& cuts, int op, size_t steps,
                   const Division& parts) {
  const OpClass& operators = coarse.operators[op];
  if (operators.slots.empty()) return 0;
  const int node = operators.nodes[0];
  const StrategyRow* row = table.row(node);
  if (operators.elementwise && !row->random && !operators.HasOtherTensors()) return 0;
  const Cuts of_op = operators.elementwise
                         ? ElementwiseCuts(*row, cuts.tensors[operators.follows])
                         : cuts.operators[op];
  const OperatorRegions regions(graph, table, node, Prefix(of_op, steps), parts);
  int64_t bytes = 0;
  for (const OpSlot& slot : operators.slots) {
    const GroupBoxes tiles =
        TileBoxes(graph.shape(SlotEntry(graph, node, slot)),
                  Prefix(cuts.tensors[slot.tensor_class], steps), parts);
    bytes += SlotBytes(graph, node, regions, slot, tiles);
  }
  return bytes;
}

}  // namespace tofu
