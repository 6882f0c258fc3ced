// Joins both phases into one graph again, for one executor that runs one half at a time.
// Then its planner lets gradients reuse the memory of activations that have been read,
// which two executors cannot do.
//
// Input:      the phases of a partitioned graph.
// Output:     one graph, and its heads.
// Invariants: the forward half comes first and depends on nothing in the backward half.
//             Saved tensors are not heads: they live until they are read.
// Errors:     none.
// Position:   after phases.h; before control_deps.h.
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
};

// `phases` must have a backward half.
JointGraph JoinPhases(Phases phases);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_JOIN_PHASES_H_
