// Finds operators that are one computation at several timesteps of an unrolled
// network, from structure alone, without names or marks (paper section 5.1,
// "Merging unrolled timesteps").
//
// Two operators correspond if they have the same signature (operator,
// attributes, row, and shape and dtype of each input and output), read the
// same parameters at the same slots, and
//   - both read some parameter (this is where a correspondence starts), or
//   - they make the inputs at the same slot of corresponding operators, or
//   - they are the only ones of their signature that read the same output of
//     corresponding operators at the same slot, or
//   - they are the n-th of their signature among the backward operators of
//     corresponding forward operators.
// A first or last step that lacks a neighbour stops there and nowhere else.
//
// Output:     the correspondence, closed under transitivity.
// Errors:     none.
// Position:   part of coalesce, which then merges the tensors at equal slots.
// Complexity: O((N + E) log N).
#ifndef TOFU_PASSES_COARSEN_TIMESTEPS_H_
#define TOFU_PASSES_COARSEN_TIMESTEPS_H_

#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/group.h"

namespace tofu {

// A number per node, equal for equal signatures; -1 for variables.
std::vector<int> Signatures(const Graph& graph, const StrategyTable& table);

// Every operator's representative: the first of those it corresponds to.
std::vector<int> AlignTimesteps(const Graph& graph, const Groups& groups,
                                const std::vector<int>& signatures);

}  // namespace tofu

#endif  // TOFU_PASSES_COARSEN_TIMESTEPS_H_
