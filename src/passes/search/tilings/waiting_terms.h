// Lets sums wait in plans that modes decide without a search of their own
// (coarsen/waiting_sums.h).
//
// Rule:       at a step that splits an operator along what it sums up, whole outputs that
//             may wait are terms. Operators that add up such terms do so on terms.
// Input:      the classes; the cuts of tensors that are fixed, or kFree; cuts of all
//             tensors and operators.
// Output:     these cuts, changed. Element-wise operators follow their tensors.
// Errors:     none.
// Position:   after a mode has decided its cuts; modes.h and mesh_layout.h call it.
// Complexity: O(C * S * L), C classes of operators, S steps, L operators in a row that
//             pass terms through in another order than the graph's.
#ifndef TOFU_PASSES_SEARCH_TILINGS_WAITING_TERMS_H_
#define TOFU_PASSES_SEARCH_TILINGS_WAITING_TERMS_H_

#include <vector>

#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/tilings/class_cuts.h"

namespace tofu {

void LetSumsWait(const StrategyTable& table, const CoarseGraph& coarse,
                 const std::vector<Cuts>& fixed, ClassCuts* cuts);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_TILINGS_WAITING_TERMS_H_
