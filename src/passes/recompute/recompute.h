// Runs parts of the forward pass again in the backward pass, to keep fewer activations.
//
// Input:      a training graph and its strategy table; the cost of running each operator
//             again; a limit of bytes.
// Output:     a new graph and its table. Operators of the chosen segments
//             (choose_segments.h) stand in it a second time, before the first operator of
//             the backward pass that reads their outputs, which then reads the second.
//             Such an operator has the attribute kRepeatsAttr, which makes it run late
//             (repeats.h), and names the operator that it repeats as control_deps[0].
// Invariants: heads and what is computed stay the same; the nodes are in memory_order.h's
//             order. Operators that are random, unknown, or have a negative cost run
//             once. Without a backward pass, or if nothing helps, the graph stays the
//             same.
// Errors:     UserError(kGraph) if there is not one cost for each node.
// Position:   on the serial graph, before group and coalesce, which put an operator and
//             its repetition into one class; orders keep it late (memory_order.h).
// Complexity: that of choose_segments.h.
//
// The forward pass consists of the nodes that memory_order.h puts before the first one
// that depends on an output's gradient, or, if losses define their own gradients, that
// reads an output and that none of the outputs needs.
#ifndef TOFU_PASSES_RECOMPUTE_RECOMPUTE_H_
#define TOFU_PASSES_RECOMPUTE_RECOMPUTE_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

struct RecomputeOptions {
  std::vector<int64_t> node_costs;  // [node]; negative: it must not run again
  int64_t limit_bytes = 0;  // of activations that stay, whole tensors; 0: the fewest
};

struct Recomputed {
  Graph graph;
  StrategyTable table;
  int num_segments = 0;
  int num_repeated = 0;     // operators
  int64_t saved_bytes = 0;  // activations that stay without recomputation
  int64_t bytes = 0;        // the most that stay, or are computed again, at a time
  int64_t cost = 0;         // of the operators that run again
};

Recomputed RecomputeActivations(const Graph& graph, const StrategyTable& table,
                                const RecomputeOptions& options);

}  // namespace tofu

#endif  // TOFU_PASSES_RECOMPUTE_RECOMPUTE_H_
