// Strided copies, which every fetch without a reduction consists of.
#ifndef TOFU_KERNELS_COPY_ROWS_H_
#define TOFU_KERNELS_COPY_ROWS_H_

#include <cstdint>

namespace tofu {

// A copy of this many bytes would push everything else out of the caches, so it
// bypasses them where it can.
constexpr int64_t kStreamBytes = 8 << 20;
// This many bytes, plus as many of their sources, do not fit the core's own caches.
constexpr int64_t kFarBytes = 3 << 18;
// Prefetching does not pay off in shorter loops over rows.
constexpr int64_t kFarLoopBytes = 16 << 10;

// Copies `rows` rows of `row_bytes` contiguous bytes; strides in bytes. `is_far`:
// whether they belong to a loop of kFarLoopBytes in a copy of kFarBytes.
void CopyRows(char* to, int64_t to_stride, const char* from, int64_t from_stride,
              int64_t rows, int64_t row_bytes, bool is_far);

// Fills `count` elements of `element_bytes` (1, 2, 4 or 8) with one value.
void FillRow(char* to, const char* value, int64_t element_bytes, int64_t count);

}  // namespace tofu

#endif  // TOFU_KERNELS_COPY_ROWS_H_
