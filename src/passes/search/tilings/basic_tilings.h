// Restricts the ways to split an operator to SoyBean's tilings. Its tensors are cut by
// rows or by columns (the first two dimensions: batch and channels of an image) or whole.
//
// Rule:       a product of two inputs, each of which has an index that the other lacks
//             and the output has, is split along what indexes rows or columns of any of
//             its tensors; so are element-wise operators. Any other operator is split
//             along the rows of its first tensor only: the batch (section 4.5 of the
//             paper of SoyBean).
// Input:      an operator's row of the strategy table.
// Output:     its variables, in the order of row.splittable; all of them if nothing
//             indexes rows.
// Errors:     none.
// Position:   alternatives.h, where the mode restricts it.
// Complexity: O(V * T^2), V variables, T tensors.
#ifndef TOFU_PASSES_SEARCH_TILINGS_BASIC_TILINGS_H_
#define TOFU_PASSES_SEARCH_TILINGS_BASIC_TILINGS_H_

#include <cstddef>
#include <vector>

#include "graph/strategy_table.h"

namespace tofu {

constexpr size_t kBasicDimensions = 2;  // rows and columns

std::vector<int> BasicTilings(const StrategyRow& row);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_TILINGS_BASIC_TILINGS_H_
