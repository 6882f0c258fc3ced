// Sorts the nodes of a partitioned graph into the order in which workers should run
// them.
//
// The order is memory_order.h's: nodes that free memory go first, and all others stay
// where partition put them, with a fetch just before its consumer. A publication goes
// right after the node that makes its tile, because a worker runs nodes in the order in
// which they become ready, and other workers wait for the address. A fetch does not wait
// for other workers' nodes, and a tile is retired as soon as all have read it.
//
// Input:      a partitioned graph, or a phase of one, without control dependencies.
// Output:     the same graph with reordered nodes, and each node's number before.
// Invariants: heads and results stay the same.
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

// Without `delay_fetches`, a MultiFetch starts as soon as its tiles are ready; turn it
// off to measure the effect of the delay.
std::vector<int> OrderNodes(Graph* graph, bool delay_fetches = true);

// The same for a graph in which only the nodes that publish, fetch and retire are not in
// that order yet.
void OrderExchange(Graph* graph);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_ORDER_NODES_H_
