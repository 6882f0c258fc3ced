// Estimates the memory of one worker under a plan: the tiles that stay (parameters,
// gradients, optimizer state), plus, at the peak of a training step, all other tiles that
// are alive, and the buffers, including fetched regions, of the operator that runs then.
//
// The limit of a search (search/tilings/memory_limit.h) shares only the lives of tensors
// (tensor_lives.h) with this estimate. It must be a sum of terms that each depend on the
// cut of one class, for incomplete plans; here a buffer depends on two decisions, and
// overwriting an input on the tiles of two tensors. One rule for both would loosen the
// limit or change the bytes that people read.
//
// Input:      a training graph, its table and a plan; operators run in
//             memory_order.h's order, as in the partitioned graph.
// Output:     the bytes of the worker that needs most.
// Rules:      a tensor is alive from its operator to its last reader; an
//             element-wise operator overwrites an input that is not read later;
//             updates and new auxiliary states are written in place. A region of an
//             input or output that differs from the tile takes a buffer.
// Errors:     none.
// Position:   after search; nothing depends on it. This is an estimate, because the
//             framework's memory planner decides which tensors share memory.
// Complexity: O(N + E), and O(slots * rank * steps) for each different operator.
#ifndef TOFU_PASSES_MEMORY_ESTIMATE_MEMORY_H_
#define TOFU_PASSES_MEMORY_ESTIMATE_MEMORY_H_

#include <cstdint>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"

namespace tofu {

// The memory of a worker, by kind. Parameters include auxiliary states; activations and
// fetch buffers are those alive at the peak.
struct WorkerBytes {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizer_state = 0;
  int64_t activations = 0;
  int64_t fetch_buffers = 0;

  int64_t total() const {
    return parameters + gradients + optimizer_state + activations + fetch_buffers;
  }
};

// The worker with the largest part of each step; the first of those that are equal.
int FullestWorker(const Plan& plan);

WorkerBytes EstimateMemory(const Graph& graph, const StrategyTable& table,
                           const Plan& plan);

}  // namespace tofu

#endif  // TOFU_PASSES_MEMORY_ESTIMATE_MEMORY_H_
