// Lowers a row of costs to the sums of other rows: the innermost loop of elimination.
//
// Input:      `best` and `rows`, of `size` cells each; a cost to add to all.
// Output:     lowers best[j] to base + the sum of rows[t][j] where that is less; returns
//             the highest best[j].
// Errors:     none; sums must not overflow.
// Position:   a part of cost_table.
// Complexity: O(cells). Compiled for several instruction sets if the compiler can; the
//             processor's best one is chosen when the program starts. All give the same
//             results.
#ifndef TOFU_SOLVER_PROBLEM_ROW_KERNELS_H_
#define TOFU_SOLVER_PROBLEM_ROW_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace tofu {

int64_t LowerRow(const int64_t* const* rows, size_t num_rows, int64_t base, size_t size,
                 int64_t* best);

}  // namespace tofu

#endif  // TOFU_SOLVER_PROBLEM_ROW_KERNELS_H_
