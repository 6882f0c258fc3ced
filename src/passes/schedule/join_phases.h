// Joins both phases into one graph again, for one executor that runs one half at a time.
// Then its planner lets gradients reuse the memory of activations that have been read,
// which two executors cannot do.
//
// Input:      the phases of a partitioned graph, with their control dependencies.
// Output:     one graph; the number of the forward half's heads, and the number of
//             nodes that the executor numbers before the backward half.
// Invariants: the forward half depends on nothing in the backward half, so it is a
//             prefix of the executor's order (bound_graph.h). Saved tensors are not
//             heads: they live until they are read.
// Errors:     none.
// Position:   after phases and control_deps.
// Complexity: linear in nodes and edges.
#ifndef TOFU_PASSES_SCHEDULE_JOIN_PHASES_H_
#define TOFU_PASSES_SCHEDULE_JOIN_PHASES_H_

#include <string>
#include <vector>

#include "passes/schedule/phases.h"

namespace tofu {

struct JointGraph {
  Graph graph;
  std::vector<PartitionedHead> forward_heads;
  std::vector<PartitionedHead> backward_heads;
  int forward_nodes = 0;  // as the executor numbers them
  int nodes = 0;          // of both halves, variables and copies included
};

// `phases` must have a backward half.
JointGraph JoinPhases(Phases phases);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_JOIN_PHASES_H_
