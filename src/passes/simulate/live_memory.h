// Counts the memory in use on each worker while a simulated step runs.
//
// A tensor is in use from the beginning of the operation that writes it to the end of its
// last reader; a head until the step ends. A tensor that takes over its input's memory
// prolongs the input's use. Tensors of the caller (variables) are not counted.
//
// Input:      a bound graph with its memory plan, and the times of its operations.
// Output:     [worker][part of the step]: most bytes in use.
// Errors:     none.
// Position:   used by simulate.h.
// Complexity: O(N log N + E).
#ifndef TOFU_PASSES_SIMULATE_LIVE_MEMORY_H_
#define TOFU_PASSES_SIMULATE_LIVE_MEMORY_H_

#include <cstdint>
#include <vector>

#include "passes/memory/bound_graph.h"
#include "passes/memory/executor_memory.h"
#include "passes/simulate/event_loop.h"

namespace tofu {

std::vector<std::vector<int64_t>> LiveMemory(
    const BoundGraph& bound, const MemoryTable& table, const std::vector<int>& blocks,
    const Operations& operations, const Execution& execution, int workers, int moments);

}  // namespace tofu

#endif  // TOFU_PASSES_SIMULATE_LIVE_MEMORY_H_
