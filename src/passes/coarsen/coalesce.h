// Merges tensors and operators that must be partitioned alike into classes, so
// that the search takes one decision for each class (paper section 5.1,
// "Coalescing operators").
//
// Input:      a training graph, its strategy table and its groups.
// Output:     CoarseGraph: classes over the original graph, which stays as it is.
// Rules:      1. the tensors of an element-wise operator share a class;
//             2. a parameter, its gradient and its optimizer state do, and an
//                auxiliary state and its new value;
//             3. unrolled timesteps, found by structure (timesteps.h), share
//                the classes of what stands at equal places.
// Invariants: all tensors of a class have one shape; all operators of a class
//             have one row, one shape and dtype at each slot and tensors of the
//             same classes, so that what one costs they all cost.
// Errors:     none.
// Position:   after group, before search.
// Complexity: O((N + E) log N), N nodes, E edges.
#ifndef TOFU_PASSES_COARSEN_COALESCE_H_
#define TOFU_PASSES_COARSEN_COALESCE_H_

#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/group.h"

namespace tofu {

struct TensorClass {
  Shape shape;
  std::vector<int> entries;
};

// One slot of an operator, as the search sees it: a tensor that it reads or
// that it makes and somebody reads.
struct OpSlot {
  bool is_output = false;
  int index = 0;
  int tensor_class = 0;
};

struct OpClass {
  std::vector<int> nodes;  // the first one speaks for all
  int signature = -1;      // equal for operators of equal shapes (timesteps.h)
  // Cut as the class of its tensors: no decision of its own.
  bool elementwise = false;
  std::vector<OpSlot> slots;  // those that can cost anything
};

// Why two tensors are cut alike. A class of n tensors has n - 1 ties.
struct Tie {
  enum class Reason { kElementwise, kParameter, kTimestep };
  int a = 0;  // entries
  int b = 0;
  Reason reason = Reason::kElementwise;
  int node = -1;  // kElementwise: the operator
};

struct CoarseGraph {
  std::vector<TensorClass> tensors;
  std::vector<OpClass> operators;
  std::vector<Tie> ties;
  std::vector<int> tensor_class;  // [entry]
  std::vector<int> op_class;      // [node], -1 for variables
};

struct CoalesceOptions {
  // Rules 1 and 3. Without them only what has to share its tiles shares a class:
  // for measuring what coarsening saves (paper, Table 1).
  bool merge_alike = true;
};

CoarseGraph Coalesce(const Graph& graph, const StrategyTable& table, const Groups& groups,
                     const CoalesceOptions& options = {});

}  // namespace tofu

#endif  // TOFU_PASSES_COARSEN_COALESCE_H_
