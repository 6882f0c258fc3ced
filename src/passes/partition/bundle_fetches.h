// Joins fetches of a worker that wait for each other anyway: those whose regions the same
// nodes read. An operator whose inputs all come from other workers then needs one fetch,
// and an owner copies all tiles that this fetch reads at once (emit_multifetch.h).
// Nothing runs later than before: an operator needs all of its regions.
//
// Gradients are read when the step has ended. So the caller says which ones are one
// fetch.
//
// Input:      a partitioned graph with MultiFetch.
// Output:     the same graph with fewer nodes. A fetch has an output for each region.
// Invariants: results stay the same; regions that are other heads stay alone.
// Errors:     none.
// Position:   within partition.
// Complexity: O(E log E) for E edges.
#ifndef TOFU_PASSES_PARTITION_BUNDLE_FETCHES_H_
#define TOFU_PASSES_PARTITION_BUNDLE_FETCHES_H_

#include <map>
#include <vector>

#include "graph/graph.h"

namespace tofu {

// `gradients`: the numbers of the heads that are fetched together, each with that of its
// bundle; all of one phase.
// `node_workers`: the worker of every node, kept in step with the graph.
void BundleFetches(const std::map<int, int>& gradients, Graph* graph,
                   std::vector<int>* node_workers);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_BUNDLE_FETCHES_H_
