// Predicts the memory that an executor allocates for a graph, without allocating any, by
// following the framework's memory planner step by step (python/tofu/mx/memory).
//
// The planner visits nodes in order. An output takes over the block of an input that
// dies there if the operator allows it (in place). Otherwise it takes the smallest
// free block of its worker that is large enough but not match_range times larger;
// otherwise the largest one that is too small but not match_range times smaller, which
// grows; otherwise a new block. A block is free again when all readers of its tensor
// have run; heads are read at the end.
//
// When it plans, the planner counts four bytes per element, regardless of dtype
// ("planned", which executor.debug_str() prints), but it allocates the bytes that the
// tensors of a block really need.
//
// Input:      a graph, the executor's order of it with the worker of each node
//             (bound_graph.h), and the in-place rules of its operators. Variables are
//             the caller's arrays and do not count.
// Output:     bytes per worker; for the worker that needs most, or that counts, the
//             tensors alive over time.
// Errors:     none; CheckMemoryTable checks whether a table fits.
// Position:   last: it changes nothing.
// Complexity: O(N log N + E) for one match range, N nodes and E edges.
#ifndef TOFU_PASSES_MEMORY_EXECUTOR_MEMORY_H_
#define TOFU_PASSES_MEMORY_EXECUTOR_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "passes/memory/bound_graph.h"

namespace tofu {

// An output that may use the input's memory; with identity, even while other nodes still
// read the input.
struct InplacePair {
  int input = 0;
  int output = 0;
  bool identity = false;
};

struct MemoryRule {
  std::vector<InplacePair> pairs;   // in the planner's order of preference
  std::vector<int> ignored_inputs;  // only their shape is read
};

struct MemoryTable {
  std::vector<MemoryRule> rules;
  std::vector<int> node_rules;  // [node]; -1: none
};

// Throws UserError(kTable) unless every node's rule names inputs and outputs that it has.
void CheckMemoryTable(const MemoryTable& table, const Graph& graph);

struct ExecutorMemoryOptions {
  int num_workers = 1;
  int match_range = 16;  // 0: blocks are never reused
  // Whether to try 1, 2, 4, ... up to match_range and take the best, as the planner does
  // if NNVM_AUTO_SEARCH_MATCH_RANGE is set.
  bool search_match_range = false;
  std::vector<char> external_heads;  // [head]: written to the caller's array
  // The worker that counts; -1: all count. The others of a view (partition/partition.h)
  // only read what the first one makes.
  int only_worker = -1;
};

// An output of a node. A worker holds it from the moment `born` until before `died`.
struct LiveTensor {
  int node = 0;  // number in the graph; -1: a copy
  int output = 0;
  int64_t bytes = 0;
  int head = -1;  // the number of a head that it is; -1: none
  int born = 0;
  int died = 0;
};

struct ExecutorMemory {
  int match_range = 0;
  int64_t planned_bytes = 0;              // of all workers, as debug_str() prints it
  std::vector<int64_t> bytes_per_worker;  // allocated
  std::vector<int64_t> live_per_worker;   // most bytes alive at one moment
  int peak_worker = 0;                    // the worker that needs most
  // The nodes that the peak worker runs, in the executor's order, as numbers in the graph
  // (-1: a copy). Each is a moment.
  std::vector<int> moments;
  std::vector<LiveTensor> lives;  // of the peak worker, by birth
  // [entry of the order]: the block that holds it; negative: the caller's array.
  std::vector<int> blocks;
};

// `order` and `table` belong to the graph.
ExecutorMemory PlanExecutorMemory(const Graph& graph, const BoundOrder& order,
                                  const MemoryTable& table,
                                  const ExecutorMemoryOptions& options);

}  // namespace tofu

#endif  // TOFU_PASSES_MEMORY_EXECUTOR_MEMORY_H_
