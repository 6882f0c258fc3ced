// Sorts the nodes of a partitioned graph into the order in which workers should run
// them.
//
// The order is memory_order.h's: nodes that free memory go first, everything else
// stays where partition put it, with a fetch just before its consumer. A publication
// goes right after the node that makes its tile, because a worker runs nodes in the
// order in which they become ready, and other workers wait for the address. A fetch
// does not wait for other workers' nodes, and a tile is retired as soon as all have
// read it.
//
// Input:      a partitioned graph, or a phase of one, without control dependencies.
// Output:     the same graph with reordered nodes, and the number that each node had
//             before.
// Invariants: heads and what is computed stay the same.
// Errors:     none.
// Position:   once for the whole graph, before phases.h, to keep the order of the
//             serial step in both halves; then OrderExchange for each phase, which has
//             its own publications and relays (relay_regions.h). Before control_deps.h.
// Complexity: memory_order.h's.
#ifndef TOFU_PASSES_SCHEDULE_ORDER_NODES_H_
#define TOFU_PASSES_SCHEDULE_ORDER_NODES_H_

#include <vector>

#include "graph/graph.h"

namespace tofu {

// Without `delay_fetches` a fetch with MultiFetch starts as soon as the tiles are
// there; this serves to measure the effect of the delay.
std::vector<int> OrderNodes(Graph* graph, bool delay_fetches = true);

// The same for a graph whose nodes are in that order already, except for those that
// publish, fetch and retire.
void OrderExchange(Graph* graph);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_ORDER_NODES_H_
