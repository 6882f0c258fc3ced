// Predicts an executor's memory from the in-place rules that Python passes: one for each
// way in which a graph calls its operators.
#ifndef TOFU_BINDINGS_MEMORY_RULES_H_
#define TOFU_BINDINGS_MEMORY_RULES_H_

#include <tuple>
#include <utility>
#include <vector>

#include "bindings/documents.h"
#include "passes/memory/bound_graph.h"
#include "passes/memory/executor_memory.h"
#include "passes/memory/operator_uses.h"

namespace tofu {

struct GraphUses {
  SharedGraph graph;
  OperatorUses uses;
};

// The rule of one way: pairs (input, output, identity), and ignored inputs.
using Rule = std::pair<std::vector<std::tuple<int, int, bool>>, std::vector<int>>;

// The planner's settings (passes/memory/executor_memory.h).
struct MemorySettings {
  int workers = 1;
  int match_range = 16;
  bool search_match_range = false;
  std::vector<int> external_heads;  // numbers of heads
  int only_worker = -1;             // as in ExecutorMemoryOptions
};

struct MemoryPrediction {
  MemoryTable table;
  BoundOrder order;
  ExecutorMemory memory;
};

// A graph without context groups belongs to worker 0 alone.
MemoryPrediction PredictExecutorMemory(const GraphUses& uses,
                                       const std::vector<Rule>& rules,
                                       const MemorySettings& settings);

}  // namespace tofu

#endif  // TOFU_BINDINGS_MEMORY_RULES_H_
