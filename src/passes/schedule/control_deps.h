// Makes MXNet run the nodes of every worker in a given order, by control
// dependencies (paper section 6: they keep the memory planner effective).
//
// MXNet does not run a graph in the order in which it is written: it visits it
// depth first from its heads, and follows control dependencies as it follows
// inputs. Here every node depends on the one before it on its worker, but for
// backward operators, which cannot: the next node that can depends on them too.
// The order is memory_order.h's: what frees memory goes first, everything else
// stays where partition put it, a fetch just before its consumer. A publication
// goes right behind the node that makes its tile: a worker runs what is ready in
// the order in which it became so, and others wait for the address. A fetch does not
// stand behind other workers' nodes, and a tile is retired as soon as all have read it.
//
// Input:      a partitioned graph, or a phase of one, without dependencies.
// Output:     the same graph: its nodes reordered and chained.
//             `node_workers`, if given, is reordered with it.
// Invariants: heads and what is computed stay the same.
// Errors:     none.
// Position:   last: after partition, and after phases, which splits the chains, and
//             relay_regions.h.
// Complexity: memory_order.h's.
#ifndef TOFU_PASSES_SCHEDULE_CONTROL_DEPS_H_
#define TOFU_PASSES_SCHEDULE_CONTROL_DEPS_H_

#include <vector>

#include "graph/graph.h"

namespace tofu {

// Without `delay_fetches` a fetch with MultiFetch starts as soon as the tiles are
// there: what that costs can so be measured.
void AddControlDeps(Graph* graph, std::vector<int>* node_workers = nullptr,
                    bool delay_fetches = true);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_CONTROL_DEPS_H_
