// Passes fetched regions through a node that copies nothing, so that a worker sends a
// fetch's acknowledgement to other workers before it computes with the region.
//
// When a fetch is done, the engine queues all work of its worker that waited for it, in
// arbitrary order: the operators that read the region, and the copy of the
// acknowledgement to the tile's owner. A queue runs in sequence. So the owner, which must
// not write to the tile's memory before it gets the acknowledgement, might wait for
// another worker's convolution. With a relay before them, the readers are queued one
// round later.
//
// Input:      a phase of a partitioned graph, without control dependencies.
// Output:     the same graph. The regions of a fetch that other workers wait for are
//             read through a `_copy`, whose output the executor puts into the region's
//             own memory (in place).
// Invariants: heads keep their numbers, and results stay the same.
// Errors:     none.
// Position:   after drop_acknowledgements.h, which decides who waits; before
//             control_deps.h.
// Complexity: linear in the graph.
#ifndef TOFU_PASSES_SCHEDULE_RELAY_REGIONS_H_
#define TOFU_PASSES_SCHEDULE_RELAY_REGIONS_H_

#include "graph/graph.h"

namespace tofu {

void RelayRegions(Graph* graph);

// Whether a node of such a graph is a relay.
bool IsRelay(const Graph& graph, const Node& node);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_RELAY_REGIONS_H_
