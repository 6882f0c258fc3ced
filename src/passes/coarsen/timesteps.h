// Finds operators that do the same computation at several timesteps of an unrolled
// network, from structure alone, without names or marks (paper section 5.1,
// "Merging unrolled timesteps").
//
// Two operators correspond if they have the same signature (operator,
// attributes, row, and shape and dtype of each input and output), read the
// same parameters at the same slots, and
//   - both read some parameter (this is where a correspondence starts), or
//   - they make the inputs at the same slot of corresponding operators, or
//   - they are the only operators of their signature that read the same output
//     of corresponding operators at the same slot, or
//   - they are the n-th of their signature among the backward operators of
//     corresponding forward operators.
// A first or last timestep that lacks a neighbour stops there and nowhere else.
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

// [node]: a number that is equal for equal signatures; -1: a variable.
std::vector<int> Signatures(const Graph& graph, const StrategyTable& table);

// [node]: the first of its corresponding operators, which represents all.
std::vector<int> AlignTimesteps(const Graph& graph, const Groups& groups,
                                const std::vector<int>& signatures);

}  // namespace tofu

#endif  // TOFU_PASSES_COARSEN_TIMESTEPS_H_
