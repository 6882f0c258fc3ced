// Lets a worker fetch a region once for several operators or timesteps (paper
// section 6), where that needs no more memory.
//
// Fetching a region anew for each operator that reads it costs communication;
// keeping it between two of them costs its bytes for as long. The latter is free
// where less than the worst moment's memory is alive all that time. So bytes that
// are alive are counted at every place of memory_order.h's order, and equal fetches
// become one as long as no worker's worst moment gets any worse, those first that
// follow each other most closely. The forward and the backward half count apart:
// a region that both need would have to be saved between them.
//
// Input:      a partitioned graph with MultiFetch, before the retirements.
// Output:     the same graph without the fetches that were shared.
// Invariants: what is computed stays the same. A shared fetch stands where the
//             first of its readers needs it.
// Errors:     none.
// Position:   within partition, whose counts of bytes it changes; before the
//             retirements, which wait for the fetches that remain.
// Complexity: O(N log N) for each worker, N nodes.
// Not handled: fetches of stock operators (emit_plain.h).
#ifndef TOFU_PASSES_PARTITION_SHARE_FETCHES_H_
#define TOFU_PASSES_PARTITION_SHARE_FETCHES_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace tofu {

struct FetchGraph {
  Graph* graph = nullptr;
  std::vector<int>* node_workers = nullptr;
  std::vector<bool> in_place;  // [node]: writes over an input that dies there
  std::vector<int> outputs;    // numbers of the heads that end the forward half
};

// Returns the bytes that are not fetched again, of each worker.
std::vector<int64_t> ShareFetches(int workers, const FetchGraph& in);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_SHARE_FETCHES_H_
