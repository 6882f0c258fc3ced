// Finds the workers whose boxes overlap a region, by walking the digits on which the
// boxes depend.
//
// A plan gives each worker a box of a tensor: its tile, or the region that its part of an
// operator needs or produces (passes/search/cost/cost.h, GroupBoxes). Along a dimension,
// the box depends on the digits of few steps only. So the walk goes through the digits of
// one dimension after the other, and follows those whose interval overlaps the region.
//
// The same walk answers two questions: it finds the owners of the pieces of a region that
// a worker needs, and the readers of a tile that it holds.
//
// Input:      the boxes of all workers, a region within the tensor, and for each step the
//             digit that the workers must have, or kAnyDigit.
// Output:     the workers and their boxes, in order of their digits of one dimension
//             after the other.
// Errors:     none.
// Complexity: O(w + d * r) for w workers found, and a tensor of rank r of which a
//             dimension has at most d different intervals.
#ifndef TOFU_PASSES_DIVIDE_OVERLAPPING_WORKERS_H_
#define TOFU_PASSES_DIVIDE_OVERLAPPING_WORKERS_H_

#include <cstddef>
#include <limits>
#include <vector>

#include "graph/box.h"
#include "passes/divide/fetch.h"
#include "passes/search/cost/cost.h"

namespace tofu {

constexpr int kAnyDigit = -1;

// `most`: the number of workers after which the walk ends.
std::vector<FetchSource> OverlappingWorkers(
    const GroupBoxes& boxes, const Box& region, const std::vector<int>& digits,
    size_t most = std::numeric_limits<size_t>::max());

// The box of the worker with these digits; an empty box if it has none.
Box BoxAt(const GroupBoxes& boxes, const std::vector<int>& digits);

// The steps on whose digits the boxes depend.
StepSet StepsOf(const GroupBoxes& boxes);

}  // namespace tofu

#endif  // TOFU_PASSES_DIVIDE_OVERLAPPING_WORKERS_H_
