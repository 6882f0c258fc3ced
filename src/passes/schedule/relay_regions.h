// Passes fetched regions through a node that copies nothing, to send the fetch's
// acknowledgement to other workers before its own computes with the region.
//
// When a fetch is done, the engine queues the work on its worker that waited for it: the
// operators that read the region, and the copy of the acknowledgement to the tile's
// owner, in arbitrary order. A queue runs in sequence. So the owner, which must not write
// to the tile's memory before it gets the acknowledgement, could have to wait for another
// worker's convolution. With a separate node before them, the readers are queued one
// round later.
//
// Input:      a phase of a partitioned graph, without control dependencies.
// Output:     the same graph. The regions of a fetch that other workers wait for are
//             read through a `_copy`, which the executor puts into the region's own
//             memory (in place).
// Invariants: heads keep their numbers, and what is computed stays the same.
// Errors:     none.
// Position:   after drop_acknowledgements.h, which decides who waits; before
//             control_deps.h.
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
