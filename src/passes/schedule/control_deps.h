// Chains the nodes of every worker with control dependencies, in their present order
// (paper section 6: this keeps the memory planner effective).
//
// An executor does not run nodes in the order in which they are written: it visits the
// graph depth first from its heads, and follows control dependencies like inputs. This
// pass makes every node depend on the one before it on its worker. Backward operators can
// have no control dependencies; the next node that can depends on them, too.
//
// Input:      a partitioned graph, or a phase of one, in order (order_nodes.h) and
//             without dependencies.
// Output:     the same graph with dependencies.
// Invariants: heads and results stay the same.
// Errors:     none.
// Position:   after order_nodes.h and relay_regions.h; before join_phases.h.
// Complexity: linear in nodes.
#ifndef TOFU_PASSES_SCHEDULE_CONTROL_DEPS_H_
#define TOFU_PASSES_SCHEDULE_CONTROL_DEPS_H_

#include "graph/graph.h"

namespace tofu {

void AddControlDeps(Graph* graph);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_CONTROL_DEPS_H_
