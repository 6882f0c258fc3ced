// Finds segments: operators that the engine of a GPU should get as one.
//
// The framework waits for a GPU's stream after every operator, or after a segment. The
// engine starts a segment when the inputs of all its operators are ready, and its outputs
// are ready when all have run. So a segment has only operators that take no longer than a
// wait. A worker's next operator joins the segment if it needs no tensor that arrives
// from another worker later than those that the segment waits for.
//
// Input:      a graph as an executor runs it.
// Output:     the nodes of each segment of two or more operators, with the variables
//             between them.
// Invariants: segments do not overlap; the operators of a segment are on one worker, and
//             none is a copy between workers.
// Errors:     none.
// Position:   after bound_graph.h. Runs on GPUs and the simulator join these nodes.
// Complexity: linear in nodes and edges.
//
// Without tofu, the framework joins the operators between two copies, at most 15 of them
// in training, unless they are on several devices.
#ifndef TOFU_PASSES_SCHEDULE_SEGMENTS_H_
#define TOFU_PASSES_SCHEDULE_SEGMENTS_H_

#include <vector>

#include "passes/memory/bound_graph.h"

namespace tofu {

// The nodes begin .. end - 1.
struct NodeRange {
  int begin = 0;
  int end = 0;
};

std::vector<NodeRange> FindSegments(const BoundGraph& bound);
std::vector<NodeRange> FindStockSegments(const BoundGraph& bound);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_SEGMENTS_H_
