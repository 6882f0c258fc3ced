// Adds a retirement for every publication that the builder's heads need, in the
// graph's order. Each becomes a head before all existing heads: an executor orders nodes
// by the first head that needs them, so memory becomes free right after its last reader.
//
// Input:      a graph with publications and the fetches that read them
//             (emit_multifetch.h says why they need retirements).
// Output:     nodes appended to the builder. Returns their number, by which the numbers
//             of the existing heads grow.
// Position:   after the last fetch of a graph, in partition and in each of the phases.
// Complexity: linear in edges.
#ifndef TOFU_PASSES_PARTITION_RETIRE_H_
#define TOFU_PASSES_PARTITION_RETIRE_H_

#include "passes/partition/graph_builder.h"

namespace tofu {

int Retire(GraphBuilder* builder);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_RETIRE_H_
