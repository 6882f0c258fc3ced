// Runs parts of the forward pass again in the backward pass, to keep fewer activations.
//
// Input:      a training graph and its strategy table; the cost of running each operator
//             again; a limit of bytes.
// Output:     a new graph and its table. It has a repeat of each operator of the chosen
//             segments (choose_segments.h), before the first operator of the backward
//             pass that reads the segment's outputs, and which now reads the repeats'. A
//             repeat has the attribute kRepeatsAttr, which makes it run late (repeats.h),
//             and names the operator that it repeats as control_deps[0].
// Invariants: heads and results stay the same; the nodes are in memory_order.h's order.
//             Operators that are random, unknown, or have a negative cost run once.
//             A view (StrategyRow::views) takes no memory and costs nothing; it runs
//             again with the operator that wrote its memory, if something late reads it.
//             Without a backward pass, or if recomputation saves nothing, the graph stays
//             the same.
// Errors:     UserError(kGraph) if there is not one cost for each node.
// Position:   on the serial graph, before group and coalesce, which put an operator and
//             its repeat into one class; memory_order.h keeps repeats late.
// Complexity: that of choose_segments.h.
//
// The forward pass ends, in memory_order.h's order, before the first node that depends on
// an output's gradient; if losses define their own gradients, before the first node that
// reads an output and that no output needs.
#ifndef TOFU_PASSES_RECOMPUTE_RECOMPUTE_H_
#define TOFU_PASSES_RECOMPUTE_RECOMPUTE_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

struct RecomputeOptions {
  std::vector<int64_t> node_costs;  // [node]; negative: it must not run again
  int64_t limit_bytes = 0;  // of whole activations that stay; 0: as few as possible
};

struct Recomputed {
  Graph graph;
  StrategyTable table;
  int num_segments = 0;
  int num_repeated = 0;     // repeats
  int64_t saved_bytes = 0;  // activations that stay without recomputation
  int64_t bytes = 0;        // activations that stay or are computed again, at the peak
  int64_t cost = 0;         // of the operators that run again
};

Recomputed RecomputeActivations(const Graph& graph, const StrategyTable& table,
                                const RecomputeOptions& options);

}  // namespace tofu

#endif  // TOFU_PASSES_RECOMPUTE_RECOMPUTE_H_
