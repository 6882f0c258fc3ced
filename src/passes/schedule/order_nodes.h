// Puts the nodes of a partitioned graph into the order in which workers should run
// them.
//
// The order is memory_order.h's: what frees memory goes first, everything else
// stays where partition put it, a fetch just before its consumer. A publication
// goes right behind the node that makes its tile: a worker runs what is ready in
// the order in which it became so, and others wait for the address. A fetch does
// not stand behind other workers' nodes, and a tile is retired as soon as all have
// read it.
//
// Input:      a partitioned graph, or a phase of one, without control dependencies.
// Output:     the same graph, its nodes reordered; the number that each of its nodes
//             had before.
// Invariants: heads and what is computed stay the same.
// Errors:     none.
// Position:   once for the whole graph, before phases.h, so that both halves keep the
//             order of the serial step; again for each phase, which has publications
//             and relays (relay_regions.h) of its own. Before control_deps.h.
// Complexity: memory_order.h's.
#ifndef TOFU_PASSES_SCHEDULE_ORDER_NODES_H_
#define TOFU_PASSES_SCHEDULE_ORDER_NODES_H_

#include <vector>

#include "graph/graph.h"

namespace tofu {

// Without `delay_fetches` a fetch with MultiFetch starts as soon as the tiles are
// there; this lets you measure what the delay saves.
std::vector<int> OrderNodes(Graph* graph, bool delay_fetches = true);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_ORDER_NODES_H_
