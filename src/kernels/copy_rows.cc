#include "kernels/copy_rows.h"

#include <algorithm>
#include <cstring>

namespace tofu {
namespace {

// Longer rows are worth a call of memcpy each.
constexpr int64_t kCallBytes = 512;
constexpr int64_t kVector = 16;

template <int64_t kBytes>
void CopyFixed(char* to, int64_t to_stride, const char* from, int64_t from_stride,
               int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(to, from, kBytes);
    to += to_stride;
    from += from_stride;
  }
}

// Rows of 16 to kCallBytes bytes: vectors, the last of which may overlap the one
// before it.
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

template <typename T>
void FillWith(char* to, const char* value, int64_t count) {
  T element;
  std::memcpy(&element, value, sizeof(T));
  std::fill_n(reinterpret_cast<T*>(to), count, element);
}

}  // namespace

void CopyRows(char* to, int64_t to_stride, const char* from, int64_t from_stride,
              int64_t rows, int64_t row_bytes) {
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
    case 128:
      return CopyFixed<128>(to, to_stride, from, from_stride, rows);
    case 256:
      return CopyFixed<256>(to, to_stride, from, from_stride, rows);
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
