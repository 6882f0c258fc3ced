#include "kernels/copy_rows.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace tofu {
namespace {

// Longer rows are worth a call of memcpy each.
constexpr int64_t kCallBytes = 2048;
// With wide vectors only much longer ones: memcpy is slow to start the string
// instructions that it uses from about 2 KiB on.
constexpr int64_t kWideCallBytes = 32 << 10;
constexpr int64_t kVector = 16;
// The loop over wide vectors does not pay off for shorter rows.
constexpr int64_t kWideBytes = 128;
// Distance to prefetch ahead of the copy across the gaps between rows: in main memory,
// and if the arrays are far.
constexpr int64_t kAheadBytes = 4096;
constexpr int64_t kFarAheadBytes = 1024;
constexpr int64_t kWide = 32;
constexpr int64_t kLine = 64;  // of the caches

template <int64_t kBytes>
void CopyFixed(char* to, int64_t to_stride, const char* from, int64_t from_stride,
               int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(to, from, kBytes);
    to += to_stride;
    from += from_stride;
  }
}

// Rows of 16 to kCallBytes bytes: vectors, of which the last may overlap the one
// before.
void CopyVectors(char* to, int64_t to_stride, const char* from, int64_t from_stride,
                 int64_t rows, int64_t row_bytes) {
  const int64_t last = row_bytes - kVector;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < last; i += kVector) std::memcpy(to + i, from + i, kVector);
    std::memcpy(to + last, from + last, kVector);
    to += to_stride;
    from += from_stride;
  }
}

// Rows of kBytes to 2 * kBytes bytes, as two moves that may overlap.
template <int64_t kBytes>
void CopyTwice(char* to, int64_t to_stride, const char* from, int64_t from_stride,
               int64_t rows, int64_t row_bytes) {
  const int64_t last = row_bytes - kBytes;
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(to, from, kBytes);
    std::memcpy(to + last, from + last, kBytes);
    to += to_stride;
    from += from_stride;
  }
}

#if defined(__x86_64__)
// The position of the byte that is copied this many bytes after byte `i` of a row.
struct Ahead {
  Ahead(int64_t bytes, int64_t row_bytes, int64_t stride)
      : offset(bytes / row_bytes * stride + bytes % row_bytes),
        wrap(row_bytes - bytes % row_bytes),
        gap(stride - row_bytes) {}
  int64_t At(int64_t i) const { return offset + i + (i < wrap ? 0 : gap); }

  const int64_t offset;
  const int64_t wrap;
  const int64_t gap;
};

__attribute__((target("avx"))) inline void MoveWide(char* to, const char* from) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

// Rows of 32 bytes and more on processors with vectors of 32 bytes. If the arrays are
// far, lines of both are prefetched: the processor looks ahead within a row, but not
// across the gap after it.
template <bool kIsFar>
__attribute__((target("avx"))) void CopyWide(char* to, int64_t to_stride,
                                             const char* from, int64_t from_stride,
                                             int64_t rows, int64_t row_bytes) {
  const Ahead from_ahead(kFarAheadBytes, row_bytes, from_stride);
  const Ahead to_ahead(kFarAheadBytes, row_bytes, to_stride);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t i = 0;
    for (; i + 4 * kWide <= row_bytes; i += 4 * kWide) {
      // Not in its own function: GCC drops calls of a function that only prefetches.
      if (kIsFar) {
        _mm_prefetch(from + from_ahead.At(i), _MM_HINT_T0);
        _mm_prefetch(from + from_ahead.At(i + kLine), _MM_HINT_T0);
        _mm_prefetch(to + to_ahead.At(i), _MM_HINT_T0);
        _mm_prefetch(to + to_ahead.At(i + kLine), _MM_HINT_T0);
      }
      MoveWide(to + i, from + i);
      MoveWide(to + i + kWide, from + i + kWide);
      MoveWide(to + i + 2 * kWide, from + i + 2 * kWide);
      MoveWide(to + i + 3 * kWide, from + i + 3 * kWide);
    }
    for (; i + kWide <= row_bytes; i += kWide) MoveWide(to + i, from + i);
    if (i < row_bytes) MoveWide(to + row_bytes - kWide, from + row_bytes - kWide);
    to += to_stride;
    from += from_stride;
  }
}

// Copies rows and bypasses the caches, which could not hold so much anyway, and need
// not read it first. All rows begin and end at multiples of 32 bytes. The processor does
// not prefetch a source across its gaps.
__attribute__((target("avx"))) void CopyStreaming(char* to, int64_t to_stride,
                                                  const char* from, int64_t from_stride,
                                                  int64_t rows, int64_t row_bytes) {
  const bool has_gaps = from_stride != row_bytes;
  const Ahead ahead(kAheadBytes, row_bytes, from_stride);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < row_bytes; i += kWide) {
      if (has_gaps && i % kLine == 0) _mm_prefetch(from + ahead.At(i), _MM_HINT_T0);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
    }
    to += to_stride;
    from += from_stride;
  }
  _mm_sfence();
}

bool HasAvx() {
  static const bool has_avx = __builtin_cpu_supports("avx") != 0;
  return has_avx;
}

bool IsWide(int64_t row_bytes) {
  return row_bytes >= kWideBytes && row_bytes <= kWideCallBytes && HasAvx();
}

bool IsStreaming(const char* to, int64_t to_stride, int64_t rows, int64_t row_bytes) {
  const uint64_t ends = reinterpret_cast<uintptr_t>(to) | to_stride | row_bytes;
  // Few lines of long rows are written only in part; all lines of short rows must be
  // written whole.
  return rows * row_bytes >= kStreamBytes && ends % kWide == 0 &&
         (row_bytes >= kWideBytes || to_stride == row_bytes || ends % kLine == 0) &&
         HasAvx();
}
#else
template <bool kIsFar>
void CopyWide(char*, int64_t, const char*, int64_t, int64_t, int64_t) {}
void CopyStreaming(char*, int64_t, const char*, int64_t, int64_t, int64_t) {}
bool IsWide(int64_t) { return false; }
bool IsStreaming(const char*, int64_t, int64_t, int64_t) { return false; }
#endif

template <typename T>
void FillWith(char* to, const char* value, int64_t count) {
  T element;
  std::memcpy(&element, value, sizeof(T));
  std::fill_n(reinterpret_cast<T*>(to), count, element);
}

}  // namespace

void CopyRows(char* to, int64_t to_stride, const char* from, int64_t from_stride,
              int64_t rows, int64_t row_bytes, bool is_far) {
  if (IsStreaming(to, to_stride, rows, row_bytes)) {
    return CopyStreaming(to, to_stride, from, from_stride, rows, row_bytes);
  }
  if (IsWide(row_bytes)) {
    if (is_far) return CopyWide<true>(to, to_stride, from, from_stride, rows, row_bytes);
    return CopyWide<false>(to, to_stride, from, from_stride, rows, row_bytes);
  }
  switch (row_bytes) {
    case 1:
      return CopyFixed<1>(to, to_stride, from, from_stride, rows);
    case 2:
      return CopyFixed<2>(to, to_stride, from, from_stride, rows);
    case 4:
      return CopyFixed<4>(to, to_stride, from, from_stride, rows);
    case 8:
      return CopyFixed<8>(to, to_stride, from, from_stride, rows);
    case 16:
      return CopyFixed<16>(to, to_stride, from, from_stride, rows);
    case 32:
      return CopyFixed<32>(to, to_stride, from, from_stride, rows);
    case 64:
      return CopyFixed<64>(to, to_stride, from, from_stride, rows);
    default:
      break;
  }
  if (row_bytes > kCallBytes) {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(to + row * to_stride, from + row * from_stride, row_bytes);
    }
  } else if (row_bytes > kVector) {
    CopyVectors(to, to_stride, from, from_stride, rows, row_bytes);
  } else if (row_bytes > 8) {
    CopyTwice<8>(to, to_stride, from, from_stride, rows, row_bytes);
  } else if (row_bytes > 4) {
    CopyTwice<4>(to, to_stride, from, from_stride, rows, row_bytes);
  } else {
    CopyTwice<2>(to, to_stride, from, from_stride, rows, row_bytes);
  }
}

void FillRow(char* to, const char* value, int64_t element_bytes, int64_t count) {
  switch (element_bytes) {
    case 1:
      return FillWith<uint8_t>(to, value, count);
    case 2:
      return FillWith<uint16_t>(to, value, count);
    case 4:
      return FillWith<uint32_t>(to, value, count);
    default:
      return FillWith<uint64_t>(to, value, count);
  }
}

}  // namespace tofu
