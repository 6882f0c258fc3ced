// Element-wise reduction of several rows into one.
#ifndef TOFU_KERNELS_COMBINE_H_
#define TOFU_KERNELS_COMBINE_H_

#include <cstdint>

#include "fetch/multifetch_spec.h"

namespace tofu {

// Combines `num_terms` contiguous rows of `count` elements, in order; rows[t] and
// `to` do not overlap. Half-precision sums and products are kept in float32 until
// the end. A maximum or minimum with a NaN is NaN. For booleans, Sum is "or" and
// Prod is "and".
using CombineRows = void (*)(void* to, const char* const* rows, int num_terms,
                             int64_t count);

// The function for a type flag; never null for a flag that ElementBytes accepts.
CombineRows FindCombine(int dtype, Combine combine);

// Writes `value` as one element of `dtype`, clamped to what the type can hold.
void WriteElement(int dtype, double value, void* to);

}  // namespace tofu

#endif  // TOFU_KERNELS_COMBINE_H_
