// Passes every fetched region through a node that copies nothing, to send the fetch's
// acknowledgement before the worker computes with the region.
//
// When a fetch is done, the engine queues what waited for it on its worker: the
// operators that read the region, and the copy of the acknowledgement to the tile's
// owner, in no useful order. A queue runs in sequence, so an owner that must not
// write to a tile's memory before that would wait for another worker's convolution.
// Behind a node of their own, the readers are queued one round later.
//
// Input:      a phase of a partitioned graph, without control dependencies.
// Output:     the same graph, every fetched region read through a `_copy`, which
//             the executor puts into the region's own memory (in place).
// Invariants: heads keep their numbers, and what is computed stays the same.
// Errors:     none.
// Position:   after phases, before control_deps.h.
// Complexity: linear in the graph.
#ifndef TOFU_PASSES_SCHEDULE_RELAY_REGIONS_H_
#define TOFU_PASSES_SCHEDULE_RELAY_REGIONS_H_

#include "graph/graph.h"

namespace tofu {

void RelayRegions(Graph* graph);

// Whether a node of such a graph is one of these copies.
bool IsRelay(const Graph& graph, const Node& node);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_RELAY_REGIONS_H_
