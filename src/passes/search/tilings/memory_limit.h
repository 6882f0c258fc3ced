// Counts the memory of the tiles that a worker holds, for searches within a limit.
//
// Tiles live as long as tensor_lives.h says; an element-wise operator overwrites an input
// that dies there. Fetched regions are not counted, because each depends on two
// decisions. So a limit holds for tiles; callers who know a plan's true peak lower it
// (python/tofu/planner/limits.py).
//
// Input:      a training graph, its table and classes.
// Output:     MemoryLimit: bytes of whole tensors by class, and when they are alive.
// Errors:     none.
// Position:   after coalesce; step_search.h turns it into uses
//             (solver/problem/moments.h).
// Complexity: O(N + E) nodes and edges; PeakBytes as much, times the steps.
#ifndef TOFU_PASSES_SEARCH_TILINGS_MEMORY_LIMIT_H_
#define TOFU_PASSES_SEARCH_TILINGS_MEMORY_LIMIT_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "graph/cuts.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/tilings/alternatives.h"

namespace tofu {

struct MemoryLimit {
  // Tensors of one class that are alive at the moments begin .. end - 1.
  struct Life {
    int tensor_class = 0;
    int64_t begin = 0;
    int64_t end = 0;
    int64_t bytes = 0;  // of the whole tensors
    Shape shape;        // of each tensor
  };

  std::vector<Life> lives;
  int64_t limit_bytes = 0;

  // A bound of the peak of all plans: cuts each class as finely as possible.
  int64_t LeastBytes(const std::vector<int>& parts,
                     const Restrictions& restrictions) const;

  // The bytes that a worker's tiles take at their peak.
  int64_t PeakBytes(const std::vector<Cuts>& tensor_cuts,
                    const std::vector<int>& parts) const;

 private:
  int64_t Peak(const std::function<int64_t(const Life&)>& tile) const;
};

// The bytes of the largest tiles after the steps that `cuts` decides, supposing that
// every later step cuts the tensors.
int64_t TileBytes(const MemoryLimit::Life& life, const Cuts& cuts,
                  const std::vector<int>& parts);

MemoryLimit LimitMemory(const Graph& graph, const StrategyTable& table,
                        const CoarseGraph& coarse, int64_t limit_bytes);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_TILINGS_MEMORY_LIMIT_H_
