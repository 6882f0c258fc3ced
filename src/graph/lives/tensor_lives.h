// Finds the lives of a training graph's tensors while its operators run in
// memory_order.h's order, as in the partitioned graph.
//
// A tensor is alive from its operator to its last reader, and dies with its own operator
// if none reads it. Parameters, auxiliary and optimizer states, inputs, gradients and
// outputs are always alive. Updates and new auxiliary states are written in place.
//
// Input:      a training graph.
// Output:     TensorLives.
// Errors:     none.
// Position:   on the serial graph; searches within a memory limit and estimate_memory.h
//             read it.
// Complexity: O(N + E) nodes and edges.
#ifndef TOFU_GRAPH_LIVES_TENSOR_LIVES_H_
#define TOFU_GRAPH_LIVES_TENSOR_LIVES_H_

#include <vector>

#include "graph/graph.h"

namespace tofu {

enum class Keep { kUntilRead, kParameter, kGradient, kState, kInPlace, kAlways };

struct TensorLives {
  std::vector<int> order;               // the nodes in memory_order.h's order
  std::vector<Keep> keep;               // [entry]
  std::vector<std::vector<int>> dying;  // [node]: entries kUntilRead that it reads last
};

TensorLives FindTensorLives(const Graph& graph);

}  // namespace tofu

#endif  // TOFU_GRAPH_LIVES_TENSOR_LIVES_H_
