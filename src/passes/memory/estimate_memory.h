// Estimates the memory of one worker under a plan: the tiles that stay
// (parameters, gradients, optimizer state), plus all other tiles that are alive at
// the worst moment of a training step and the buffers, including fetched regions, of
// the operator that runs then.
//
// Input:      a training graph, its table and a plan; operators run in
//             memory_order.h's order, as in the partitioned graph.
// Output:     bytes of the worker that needs most, as far as the workers differ.
// Rules:      a tensor is alive from its operator to its last reader; an
//             element-wise operator overwrites an input that is not read later;
//             updates and new auxiliary states are written in place. An input of
//             which an operator needs a region other than the tile takes a buffer
//             of that region, and so does an output of which it produces one.
// Errors:     none.
// Position:   after search; nothing depends on it. An estimate: the planner of
//             the framework that runs the graph decides what is shared.
// Complexity: O(N + E), and O(slots * rank * steps) for each different operator.
#ifndef TOFU_PASSES_MEMORY_ESTIMATE_MEMORY_H_
#define TOFU_PASSES_MEMORY_ESTIMATE_MEMORY_H_

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"

namespace tofu {

WorkerBytes EstimateMemory(const Graph& graph, const StrategyTable& table,
                           const Plan& plan);

}  // namespace tofu

#endif  // TOFU_PASSES_MEMORY_ESTIMATE_MEMORY_H_
