// Makes an executor run the nodes of a graph in the order in which they are written
// (paper section 6: this keeps the memory planner effective).
//
// An executor visits the graph depth first from its heads, and follows control
// dependencies like inputs. So this pass puts a head before all others: a node that
// depends on every other node, in their order. Then no tensor waits for another worker's
// turn to be read. An engine runs operators as soon as their arrays are ready; the order
// only decides when it gets them.
//
// Input:      a partitioned graph, or a phase of one, in order.
// Output:     the same graph with a node more. The number of every head grows by one.
// Invariants: results stay the same.
// Errors:     none.
// Position:   last of the passes on a graph.
// Complexity: linear in nodes.
#ifndef TOFU_PASSES_SCHEDULE_CONTROL_DEPS_H_
#define TOFU_PASSES_SCHEDULE_CONTROL_DEPS_H_

#include "graph/graph.h"

namespace tofu {

void AddControlDeps(Graph* graph);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_CONTROL_DEPS_H_
