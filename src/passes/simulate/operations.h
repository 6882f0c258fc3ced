// Lists the operations that the framework's engine runs for a graph, and their
// dependencies.
//
// The executor pushes one operation for each node, in its own order (bound_graph.h). An
// operation waits for the writers of its inputs and, before it writes to memory, for all
// earlier readers and writers of that memory: the planner's blocks are the engine's
// variables. Control dependencies only decide the order.
// On devices with segments, the nodes of one of `segments` are one operation: it
// waits for the inputs of all of them.
//
// Input:      the bound graph, the block of every entry (executor_memory.h), the machine,
//             and the work of every call of an operator (operator_calls.h).
// Output:     operations in the order in which they are pushed, with their successors.
// Errors:     SpecError for a fetch whose attributes are damaged.
// Position:   before event_loop.h, which runs them.
// Complexity: O(N log N + E) for N nodes and E edges, including those of reused memory.
// Not handled: temporary space and random generators, which operators on CPU contexts
//             share and wait for.
#ifndef TOFU_PASSES_SIMULATE_OPERATIONS_H_
#define TOFU_PASSES_SIMULATE_OPERATIONS_H_

#include <vector>

#include "machine/machine.h"
#include "passes/memory/bound_graph.h"
#include "passes/schedule/segments.h"
#include "passes/simulate/operator_calls.h"

namespace tofu {

// A move of bytes between two devices.
struct Flow {
  int from = 0;
  int to = 0;
  double bytes = 0;
};

// An operation computes, brings regions from other workers, or copies a tensor to another
// worker.
enum class Activity { kCompute, kFetch, kCopy };

struct Operation {
  int device = 0;
  bool on_copy_thread = false;
  Activity activity = Activity::kCompute;
  int node = 0;          // the first of its nodes, in the bound graph
  double host_s = 0;     // on the thread that runs it
  double compute_s = 0;  // on the device, without sharing it
  int first_flow = 0;    // they run after the computation, one after the other
  int num_flows = 0;
};

struct Operations {
  std::vector<Operation> operations;
  std::vector<Flow> flows;
  std::vector<int> node_operations;  // [node of the bound graph]; -1: a variable
  std::vector<int> first_successor;  // [operation], and the number of successors
  std::vector<int> successors;
  std::vector<int> num_predecessors;  // [operation]
};

// `works`: per call of `calls`, which belong to the graph that `bound` was made from.
Operations MakeOperations(const BoundGraph& bound, const std::vector<int>& blocks,
                          const Machine& machine, const OperatorCalls& calls,
                          const std::vector<Work>& works,
                          const std::vector<NodeRange>& segments);

}  // namespace tofu

#endif  // TOFU_PASSES_SIMULATE_OPERATIONS_H_
