// Lets a worker keep a fetched region for operators that need it again, instead of
// fetching it once more, if its memory allows.
//
// All workers must decide alike, as an owner sends what its readers expect. So the first
// worker decides, which holds a largest tile of every tensor, and all others follow.
//
// Input:      the program of the first worker; for each step, whether its operator may
//             write over an input.
// Output:     for each step, the earlier fetch whose region takes its place, or -1. Equal
//             fetches are considered from the closest pair on.
// Invariants: the first worker's peak grows by at most `spare_bytes`; without bytes to
//             spare, no region is kept from the forward to the backward half.
// Errors:     none.
// Position:   after worker_program.h made all steps.
// Complexity: O(S log S) for S steps.
#ifndef TOFU_PASSES_DIVIDE_SHARE_REGIONS_H_
#define TOFU_PASSES_DIVIDE_SHARE_REGIONS_H_

#include <cstdint>
#include <vector>

#include "passes/divide/worker_program.h"

namespace tofu {

std::vector<int> ShareRegions(const WorkerProgram& first,
                              const std::vector<bool>& in_place, int64_t spare_bytes);

// Removes the steps that have been replaced, and those that no head needs.
void RemoveSteps(const std::vector<int>& replaced, WorkerProgram* program);

}  // namespace tofu

#endif  // TOFU_PASSES_DIVIDE_SHARE_REGIONS_H_
