// Lets a worker fetch a region once for several operators or timesteps (paper
// section 6) if that needs no more memory.
//
// Fetching a region again for each operator that reads it costs communication; keeping
// it between two readers costs its bytes in the meantime. Keeping is free if the memory
// alive during that time stays below the peak. So the pass counts the
// bytes alive at every position of memory_order.h's order, and merges equal fetches
// as long as no worker's peak grows, the closest ones first. It treats the forward
// and the backward half separately: a region that both need would have to be saved
// between them. With `spare_bytes`, it counts both halves together, keeps such regions,
// too, and lets the peak grow by that number.
//
// Input:      a partitioned graph with MultiFetch, before the retirements.
// Output:     the same graph without the fetches that were shared.
// Invariants: results stay the same. A shared fetch stands before its first reader.
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
  std::vector<bool> in_place;  // [node]: overwrites an input that dies there
  std::vector<int> outputs;    // numbers of the heads that end the forward half
};

// Returns, per worker, the bytes saved by sharing.
std::vector<int64_t> ShareFetches(int workers, const FetchGraph& in,
                                  int64_t spare_bytes = 0);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_SHARE_FETCHES_H_
