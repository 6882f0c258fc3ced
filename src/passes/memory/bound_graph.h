// Orders a graph as an executor runs it: with a copy on every edge that leaves a worker,
// except to nodes that read directly (kDirectAttr), and with its nodes in the executor's
// order, which decides how long tensors live, and hence the executor's memory plan.
//
// The executor visits a graph depth first from its heads; at each node it visits the
// inputs in order and then the control dependencies. It does so once to insert the
// copies (NNVM's PlaceDevice) and again to number the nodes. It copies a tensor once to
// each worker that reads it.
//
// Input:      a graph and the worker of every node.
// Output:     the order as numbers of nodes, or a new graph, without nodes that no head
//             needs.
// Invariants: nodes come after everything that they read or depend on.
// Errors:     none.
// Position:   after partition, or phases; before executor_memory.
// Complexity: linear in nodes and edges.
#ifndef TOFU_PASSES_MEMORY_BOUND_GRAPH_H_
#define TOFU_PASSES_MEMORY_BOUND_GRAPH_H_

#include <cstddef>
#include <vector>

#include "graph/graph.h"

namespace tofu {

// The places of nodes in the executor's order. Outputs are numbered consecutively.
struct BoundOrder {
  std::vector<int> sources;        // [place]: number in the graph; -1: a copy
  std::vector<int> workers;        // [place]
  std::vector<int> first_entry;    // [place + 1]: its first output
  std::vector<int> entry_sources;  // [entry]: in the graph; a copy has its input's
  std::vector<size_t> first_read;  // [place + 1]: its first input in `reads`
  std::vector<int> reads;          // entries
  std::vector<int> heads;          // entries

  int size() const { return static_cast<int>(sources.size()); }
  int num_entries() const { return static_cast<int>(entry_sources.size()); }
  // The place of the node that has this output.
  int place(int entry) const;
};

// `heads`: entries of the graph, in the order in which the executor visits them.
BoundOrder OrderOf(const Graph& graph, const std::vector<int>& workers,
                   const std::vector<NodeEntry>& heads);

struct BoundGraph {
  Graph graph;               // without head roles and control dependencies
  std::vector<int> workers;  // [node]
  std::vector<int> sources;  // [node]: number in the given graph; -1: a copy
};

BoundGraph OrderAsBound(Graph graph, const std::vector<int>& workers);
// As OrderAsBound, for an order that OrderOf has found.
BoundGraph InOrder(Graph graph, const BoundOrder& order);

// A copy of the graph without most attributes and names, which decide neither order nor
// sizes of tensors. It is much cheaper than a full copy.
Graph OutlineOf(const Graph& graph);

}  // namespace tofu

#endif  // TOFU_PASSES_MEMORY_BOUND_GRAPH_H_
