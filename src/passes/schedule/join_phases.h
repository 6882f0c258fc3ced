// Puts both phases into one graph again, for one executor that runs them one at a
// time: its planner then lets gradients take the memory of activations that have
// been read, which two executors keep apart.
//
// Input:      the phases of a partitioned graph, with their control dependencies.
// Output:     one graph; how many of its heads are the forward half's, and how many
//             nodes the executor numbers before the first of the backward half.
// Invariants: the forward half depends on nothing of the backward half, so that
//             it is a prefix of the executor's order (bound_graph.h). What is saved
//             is no head: it lives until it is read.
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
  int nodes = 0;          // all of them, variables and copies included
};

// `phases` have a backward half.
JointGraph JoinPhases(Phases phases);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_JOIN_PHASES_H_
