// Joins nodes of a worker that wait for each other anyway: fetches whose regions the same
// nodes read, and publications that the same fetches read.
//
// An operator whose inputs all come from other workers then needs one fetch, and an
// owner publishes all tiles that this fetch reads at once. Nothing runs later than
// before: an operator needs all of its regions, and a fetch all of its tiles.
//
// Gradients are read when the step has ended. So small gradients of a worker are one
// fetch, and so are gradients whose terms the same nodes make.
//
// Parameters are ready before a step begins. So if handles are read directly, a worker
// publishes the tiles of several parameters at once, whichever workers fetch them.
//
// Input:      a partitioned graph with MultiFetch, before the retirements.
// Output:     the same graph with fewer nodes. A fetch has an output for each region,
//             then its acknowledgement; a handle has an element for each tile.
// Invariants: results stay the same; regions that are other heads stay alone.
// Errors:     none.
// Position:   within partition: before the retirements, which wait for whole bundles.
// Complexity: O(E log E) for E edges.
#ifndef TOFU_PASSES_PARTITION_BUNDLE_FETCHES_H_
#define TOFU_PASSES_PARTITION_BUNDLE_FETCHES_H_

#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tofu {

// `parameters`: the variables that hold tiles of parameters. `gradients`: the numbers of
// the heads that may be fetched together, all of one phase. `node_workers`: the worker of
// every node, kept in step with the graph.
void BundleFetches(const std::set<std::string>& parameters,
                   const std::set<int>& gradients, Graph* graph,
                   std::vector<int>* node_workers);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_BUNDLE_FETCHES_H_
