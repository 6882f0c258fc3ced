// Plans how workers exchange small regions through one of them, the root, in fewer
// copies: the root assembles, or reduces, a box of all their regions, and each reads its
// region from the root.
//
// If n workers each read something of every other's tile, they make n * (n - 1) copies;
// through a root, 2 * (n - 1). The root's own transfers are additional bytes, which do
// not matter for small tensors: each copy takes the host several microseconds.
//
// Input:      the fetches of one tensor, and a planner of further fetches of it.
// Output:     for each group of workers that exchange regions among themselves: the fetch
//             of the root, and the fetches that replace the group's. Leaves out groups
//             that would not make fewer copies, and groups whose root would assemble more
//             than `max_bytes` or elements outside the tensor.
// Invariants: each worker assembles the same region, bit for bit.
// Complexity: O(p + n * r) for p pieces, and n workers of tensors of rank r, without the
//             root's fetch.
// Not handled: regions of several tensors at once; sharing a root's array, or the
//             executor's copy of a whole tile, between operators.
#ifndef TOFU_PASSES_PARTITION_ROOT_FETCHES_H_
#define TOFU_PASSES_PARTITION_ROOT_FETCHES_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "graph/box.h"
#include "passes/divide/fetch.h"

namespace tofu {

struct RootFetches {
  FetchSpec collect;               // the root's: a box of all the readers' regions
  std::vector<FetchSpec> regions;  // the readers', each from the root's array
};

// The fetch of a region of the tensor by a worker.
using FetchPlanner = std::function<FetchSpec(int worker, const Box& region)>;

// `turn` chooses the root among a group's workers: its remainder is the root's number.
std::vector<RootFetches> PlanRootFetches(const std::vector<FetchSpec>& specs,
                                         const FetchPlanner& planner,
                                         int64_t element_bytes, int64_t max_bytes,
                                         int turn);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_ROOT_FETCHES_H_
