// Orders a graph's nodes to keep little memory alive at a time.
//
// NNVM orders a graph depth first from its heads. The gradient of the first layer needs
// the whole backward pass, so all nodes that only other heads need wait until then: an
// unrolled RNN keeps the weight gradients of all layers and timesteps before it adds them
// up. This order runs a node as soon as it is ready if that takes hardly any memory, that
// is, if its outputs are no larger than the tensors of which it is the last reader, or
// larger by less than a thousandth of the graph's largest output. All other nodes keep
// their order, and so do repeats (repeats.h).
//
// Input:      a graph, nodes in topological order.
// Output:     the numbers of all its nodes, in the new order.
// Invariants: topological; equal graphs give equal orders.
// Errors:     none.
// Position:   on the serial graph, before partition generates it node by node;
//             on the partitioned one, before control_deps fixes the order.
// Complexity: O(N + E) nodes and edges, times the readers of a tensor.
#ifndef TOFU_GRAPH_LIVES_MEMORY_ORDER_H_
#define TOFU_GRAPH_LIVES_MEMORY_ORDER_H_

#include <vector>

#include "graph/graph.h"

namespace tofu {

std::vector<int> MemoryOrder(const Graph& graph);

}  // namespace tofu

#endif  // TOFU_GRAPH_LIVES_MEMORY_ORDER_H_
