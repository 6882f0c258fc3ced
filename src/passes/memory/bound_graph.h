// A graph as an executor runs it: with a copy on every edge that leaves a
// worker, except to nodes that read directly (kDirectAttr), and its nodes in the
// executor's order. That order decides how long
// tensors live, and hence the executor's memory plan.
//
// The executor visits a graph depth first from its heads; at each node it visits the
// inputs in order and then the control dependencies. It does so once to insert the
// copies (NNVM's PlaceDevice) and again to number the nodes. It copies a tensor once to
// each worker that reads it.
//
// Input:      a graph and the worker of every node.
// Output:     a new graph, without nodes that no head needs.
// Invariants: nodes come after everything that they read or depend on.
// Errors:     none.
// Position:   after partition, or phases; before executor_memory.
// Complexity: linear in nodes and edges.
#ifndef TOFU_PASSES_MEMORY_BOUND_GRAPH_H_
#define TOFU_PASSES_MEMORY_BOUND_GRAPH_H_

#include <vector>

#include "graph/graph.h"

namespace tofu {

struct BoundGraph {
  Graph graph;               // without head roles
  std::vector<int> workers;  // [node]
  std::vector<int> sources;  // [node]: number in the given graph; -1: a copy
};

BoundGraph OrderAsBound(Graph graph, const std::vector<int>& workers);

// A copy with all that the order and the sizes of tensors depend on, without most
// attributes and names: much less to copy.
Graph OutlineOf(const Graph& graph);

}  // namespace tofu

#endif  // TOFU_PASSES_MEMORY_BOUND_GRAPH_H_
