// Checks the tiles and workers of a partitioned graph. Runs after partition and after
// every pass that changes its graphs, in debug and test builds.
//
// Input:      the graph of all workers, or of one half of a step, with its tiles.
// Rules:      those of verify_graph.h; every node has a worker; every tensor has one
//             tile for each worker, and the tiles, equal ones counted once, cover it
//             without an overlap; a tile is an entry of its own shape and dtype on
//             its own worker; a `_copy` keeps shape and dtype; a MultiFetch makes the
//             regions in its specifications; if some nodes read other workers'
//             arrays directly, the others read none.
// Errors:     InternalError with the node or tensor and the rule it breaks.
// Complexity: O(N + E), and O(k^2 * r) for each tensor of rank r over k workers.
#ifndef TOFU_PASSES_PARTITION_VERIFY_TILES_H_
#define TOFU_PASSES_PARTITION_VERIFY_TILES_H_

#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/partition/partitioned.h"

namespace tofu {

void VerifyTiles(const Graph& graph, const std::vector<PartitionedVariable>& variables,
                 const std::vector<PartitionedHead>& heads, int workers,
                 const std::string& after);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_VERIFY_TILES_H_
