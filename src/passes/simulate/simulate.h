// Simulates a training step: runs the operations of a graph on a machine, and adds up
// how workers and links spend the time.
//
// Input:      a graph as the executor runs it, its memory plan, the work of its
//             operators, and a machine with at least as many devices as the graph has
//             workers.
// Output:     the simulated time of the step, the use of each worker and link, the chain
//             of operations that took as long as the step, and the memory of each worker
//             over time.
// Errors:     MachineError if the machine has too few devices.
// Position:   last: it changes nothing.
// Complexity: that of event_loop.h.
#ifndef TOFU_PASSES_SIMULATE_SIMULATE_H_
#define TOFU_PASSES_SIMULATE_SIMULATE_H_

#include <cstdint>
#include <vector>

#include "machine/machine.h"
#include "passes/memory/bound_graph.h"
#include "passes/memory/executor_memory.h"
#include "passes/simulate/event_loop.h"
#include "passes/simulate/operator_calls.h"

namespace tofu {

// The seconds that threads spend, by activity.
struct Spent {
  double host_s = 0;
  double compute_s = 0;
  double link_s = 0;
};

struct WorkerUse {
  Spent spent;  // sums over the worker's threads
  double busy_s = 0;
  double waiting_s = 0;         // the remaining time of the step
  int64_t static_bytes = 0;     // of variables
  int64_t allocated_bytes = 0;  // of variables and of the executor's pool
  // [part]: most bytes in use in each of equal parts of the step.
  std::vector<int64_t> live_bytes;
};

// The chain of operations that ends the step; each waited for the one before.
struct CriticalPath {
  std::vector<int> operations;  // in order
  double script_s = 0;          // until the script had pushed the first operation
  Spent spent;
};

struct Simulation {
  Operations operations;
  Execution execution;
  std::vector<WorkerUse> workers;
  CriticalPath path;
};

struct SimulationOptions {
  int moments = 60;  // parts of the step for which memory is reported
  // Whether the framework runs the graph as without tofu, in its own segments.
  bool is_stock = false;
};

// `calls` and `table` belong to the graph that `bound` was made from; `memory` is the
// result of PlanExecutorMemory for them.
Simulation Simulate(const BoundGraph& bound, const MemoryTable& table,
                    const ExecutorMemory& memory, const OperatorCalls& calls,
                    const std::vector<Work>& works, const Machine& machine,
                    SimulationOptions options);

}  // namespace tofu

#endif  // TOFU_PASSES_SIMULATE_SIMULATE_H_
