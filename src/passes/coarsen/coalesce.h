// Merges tensors and operators that must be partitioned alike into classes; the
// search decides once for each class (paper section 5.1, "Coalescing operators").
//
// Input:      a training graph, its strategy table and its groups.
// Output:     CoarseGraph: classes over the original graph, which is unchanged.
// Rules:      1. the tensors of an element-wise operator share a class, unless it is
//                released;
//             2. so do a parameter, its gradient and its optimizer state, and an
//                auxiliary state and its new value. With other UpdateTies the
//                optimizer state, or gradient and state, have a class of their own, and
//                so may be cut where the parameter is whole (ZeRO's stages 1 and 2);
//                the update is split like them;
//             3. corresponding tensors and operators of unrolled timesteps, found by
//                structure (timesteps.h), share classes, if no pins cut them apart;
//             4. an operator that runs again in the backward pass (recompute.h) shares
//                the classes of the one that it repeats;
//             5. tensors that may wait as terms of one sum share a class, but none with
//                others, and the operator that ends such a sum is released.
// Invariants: all tensors of a class have one shape; all operators of a class
//             have one row, and at each slot one shape and dtype, one tensor class,
//             and parameters or none, and therefore equal costs.
// Errors:     none.
// Position:   after group, before search.
// Complexity: O((N + E) log N), N nodes, E edges.
#ifndef TOFU_PASSES_COARSEN_COALESCE_H_
#define TOFU_PASSES_COARSEN_COALESCE_H_

#include <map>
#include <vector>

#include "graph/cuts.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/group.h"
#include "passes/coarsen/waiting_sums.h"

namespace tofu {

struct TensorClass {
  Shape shape;
  std::vector<int> entries;
  bool may_wait = false;  // its tensors may be terms (waiting_sums.h)
};

// One slot of an operator, as the search sees it: a tensor that it reads, or one
// that it produces and that another operator or a head reads.
struct OpSlot {
  bool is_output = false;
  bool reads_parameter = false;  // a parameter itself, not a tensor that is cut like it
  int index = 0;
  int tensor_class = 0;
};

struct OpClass {
  std::vector<int> nodes;  // the first one represents all
  int signature = -1;      // equal for operators of equal shapes (timesteps.h)
  // Whether the class is cut like the tensors of the class `follows`, without a decision
  // of its own. Only an update may have tensors of other classes.
  bool elementwise = false;
  bool adds_terms = false;    // may be split along the terms of its inputs
  std::vector<OpSlot> slots;  // slots that can cost anything
  int follows = -1;           // a tensor class; -1: none

  bool HasOtherTensors() const {
    for (const OpSlot& slot : slots) {
      if (elementwise && slot.tensor_class != follows) return true;
    }
    return false;
  }
};

// The reason why two tensors are cut alike. A class of n tensors has n - 1 ties.
struct Tie {
  enum class Reason { kElementwise, kParameter, kTimestep, kRepeat };
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

// The tensors that are cut like their parameter, if it is updated element by element.
enum class UpdateTies {
  kAll,       // its gradient and its optimizer state
  kGradient,  // its gradient; the state has a class of its own
  kNone,      // nothing; gradient and state share a class
};

// Rules 1, 3 and 5 make the search fast. Without 1 and 3, a class has only tensors that
// must share tiles, or may wait for one sum.
struct CoalesceOptions {
  bool merge_elementwise = true;
  bool merge_timesteps = true;
  // [node]: element-wise operators to which rule 1 does not apply; empty: none.
  std::vector<bool> released = {};
  UpdateTies updates = UpdateTies::kAll;
  SumsWait sums_wait = SumsWait::kNever;  // where rule 5 applies
  std::map<int, Cuts> pinned = {};        // entry -> its cuts, by step
};

CoarseGraph Coalesce(const Graph& graph, const StrategyTable& table, const Groups& groups,
                     const CoalesceOptions& options = {});

}  // namespace tofu

#endif  // TOFU_PASSES_COARSEN_COALESCE_H_
