// The alternatives of the search: the ways to cut a tensor and to split an operator
// over the steps, under the restrictions of the search mode.
//
// Output:     never empty; every alternative keeps the decisions of `given`.
// Errors:     none; *complete is false if there are more than `limit`.
#ifndef TOFU_PASSES_SEARCH_TILINGS_ALTERNATIVES_H_
#define TOFU_PASSES_SEARCH_TILINGS_ALTERNATIVES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/cuts.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

struct Restrictions {
  // [tensor class]: may stay whole at any step, not only if nothing can be cut;
  // empty: none may.
  std::vector<bool> may_be_whole;
  // [tensor class], [operator class]: a dimension, or variable, that steps may cut
  // unevenly although they could cut another one evenly (-1: none); empty: none may.
  std::vector<int> uneven_dims;
  std::vector<int> uneven_vars;
  // Operators may stay whole, too: then all workers of the step compute the same.
  // Operators of random numbers may not.
  bool operators_may_be_whole = false;
  // Light operators may stay whole.
  bool light_may_be_whole = false;
  // No operator is split along a variable that reduces an output, unless no other
  // variable can be cut evenly.
  bool forbid_output_reduction = false;
  // All free steps cut one dimension, or variable. If it can be cut no further, the first
  // one that can takes its place.
  bool same_dimension = false;
  // A step cuts only dimensions that it divides into equal tiles, as PyTorch's programs
  // need.
  bool equal_tiles = false;
  // Tensors are cut along their first two dimensions only, and operators are split along
  // the variables of basic_tilings.h.
  bool basic_tilings = false;
};

// What a step may do with a tensor besides cutting a dimension evenly.
struct TensorFreedom {
  bool whole = false;  // always, not only if nothing can be cut
  bool terms = false;  // each worker may hold a term
  int uneven = -1;     // as in CutExtents

  TensorFreedom(bool may_be_whole, bool may_wait = false,  // NOLINT: most tell the first
                int uneven_dim = -1)
      : whole(may_be_whole), terms(may_wait), uneven(uneven_dim) {}
};

// The variables along which an operator can be split.
struct SplitVariables {
  const StrategyRow* row = nullptr;  // null: nothing is known of the operator
  Shape extents;                     // [variable]
  std::vector<int> candidates;       // those that the restrictions allow
  bool adds_terms = false;           // its terms are among them, and it may stay whole
  int uneven = -1;                   // as in CutExtents
};

// Whether an operator may stay whole at a step although it could be split.
bool MayComputeWhole(const Restrictions& restrictions, const StrategyRow* row);

// `adds_terms`: whether inputs may be terms (coarsen/waiting_sums.h). `uneven`: as in
// CutExtents.
SplitVariables VariablesOf(const Graph& graph, const StrategyTable& table, int node,
                           const Restrictions& restrictions, bool adds_terms = false,
                           int uneven = -1);
// The dimensions along which a tensor may be cut, and kTerms if it may be terms.
std::vector<int> TensorCandidates(const Shape& shape, const Restrictions& restrictions,
                                  TensorFreedom free);

// Whether the cuts combine the parts of each output by one operation.
bool ReducesOneWay(const SplitVariables& variables, const Cuts& cuts);
// Whether some output can be reduced by different operations.
bool MayMixReductions(const StrategyRow& row);

// Whether the parts of a group, together, may need less of an input than the group: some
// operators skip elements, such as a slice, or windows narrower than their stride.
bool MaySkipElements(const Graph& graph, const StrategyRow& row, int node);

// Makes every free step of `given` cut `first`; a step that does not cut it evenly takes
// the first of `candidates` that it cuts evenly, else the first that it can cut at all,
// else kReplicated. If `first` is kReplicated, so are all free steps.
Cuts FillAlike(const CutExtents& extents, const std::vector<int>& candidates, int first,
               Cuts given, const std::vector<int>& parts);

std::vector<Cuts> TensorAlternatives(const Shape& shape, const Cuts& given,
                                     const std::vector<int>& parts,
                                     const Restrictions& restrictions, TensorFreedom free,
                                     size_t limit, bool* complete);

// The operator stays whole only if nothing can be cut, or if it may add terms: else it
// would be merged with its tensors, and whole with them. Leaves out alternatives that
// would combine the parts of one output in several ways.
std::vector<Cuts> OperatorAlternatives(const SplitVariables& variables, const Cuts& given,
                                       const std::vector<int>& parts,
                                       const Restrictions& restrictions, size_t limit,
                                       bool* complete);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_TILINGS_ALTERNATIVES_H_
