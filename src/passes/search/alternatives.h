// The alternatives of the search: the ways to cut a tensor and to split an operator
// over the steps, under the restrictions of the search mode.
//
// Output:     never empty; every alternative keeps the decisions of `given`.
// Errors:     none; *complete is false if there are more than `limit`.
#ifndef TOFU_PASSES_SEARCH_ALTERNATIVES_H_
#define TOFU_PASSES_SEARCH_ALTERNATIVES_H_

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
  // Operators may, too: all workers of the step compute the same. Not those of random
  // numbers.
  bool operators_may_be_whole = false;
  // Those that compute nothing may.
  bool moves_may_be_whole = false;
  // No operator is split along a variable that reduces an output, unless no other
  // variable can be cut evenly.
  bool forbid_output_reduction = false;
  // One dimension, or variable, for all free steps. If it can be cut no further, the
  // first one that can takes its place.
  bool same_dimension = false;
  // A step cuts only what divides, so that all tiles have one size, as PyTorch's programs
  // need.
  bool equal_tiles = false;
  // Tensors are cut along their first two dimensions only, and operators split along
  // those of basic_tilings.h.
  bool basic_tilings = false;
};

// What an operator can be split along.
struct SplitVariables {
  const StrategyRow* row = nullptr;  // null: nothing is known of the operator
  Shape extents;                     // [variable]
  std::vector<int> candidates;       // variables
};

// Whether an operator may stay whole at a step although it could be split.
bool MayComputeWhole(const Restrictions& restrictions, const StrategyRow* row);

SplitVariables VariablesOf(const Graph& graph, const StrategyTable& table, int node,
                           const Restrictions& restrictions);
// The dimensions along which a tensor may be cut.
std::vector<int> DimensionsOf(const Shape& shape, const Restrictions& restrictions);

// Parts of one output can only be combined by one operation.
bool ReducesOneWay(const SplitVariables& variables, const Cuts& cuts);
// Whether some output can be reduced in different ways.
bool MayMixReductions(const StrategyRow& row);

// Whether the parts of a group may need less of an input, together, than the group: an
// operator may skip elements, as windows narrower than their stride do, or a slice.
bool MaySkipElements(const Graph& graph, const StrategyRow& row, int node);

// `given` with every free step cutting `first`; if a step does not cut that evenly, the
// first of `candidates` that it does; then what it can cut at all, in the same order;
// kReplicated if that is nothing, or `first`.
Cuts FillAlike(const CutExtents& extents, const std::vector<int>& candidates, int first,
               Cuts given, const std::vector<int>& parts);

std::vector<Cuts> TensorAlternatives(const Shape& shape, const Cuts& given,
                                     const std::vector<int>& parts,
                                     const Restrictions& restrictions, bool may_be_whole,
                                     size_t limit, bool* complete);

// Whole only if nothing can be cut; leaves out alternatives that would combine the parts
// of one output in several ways.
std::vector<Cuts> OperatorAlternatives(const Graph& graph, const StrategyTable& table,
                                       int node, const Cuts& given,
                                       const std::vector<int>& parts,
                                       const Restrictions& restrictions, size_t limit,
                                       bool* complete);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_ALTERNATIVES_H_
