#include "solver/problem/row_kernels.h"

#include <algorithm>
#include <limits>

// Clones need a C library that resolves functions while loading, before sanitizers are
// ready.
#if defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 12 && \
    !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&       \
    !defined(__SANITIZE_THREAD__)
#define TOFU_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TOFU_VECTOR_CLONES
#endif

namespace tofu {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();

TOFU_VECTOR_CLONES int64_t LowerToConstant(int64_t base, size_t size,
                                           int64_t* __restrict best) {
  int64_t highest = kLowest;
  for (size_t j = 0; j < size; ++j) {
    best[j] = std::min(best[j], base);
    highest = std::max(highest, best[j]);
  }
  return highest;
}

TOFU_VECTOR_CLONES int64_t LowerToOne(const int64_t* __restrict a, int64_t base,
                                      size_t size, int64_t* __restrict best) {
  int64_t highest = kLowest;
  for (size_t j = 0; j < size; ++j) {
    best[j] = std::min(best[j], base + a[j]);
    highest = std::max(highest, best[j]);
  }
  return highest;
}

TOFU_VECTOR_CLONES int64_t LowerToTwo(const int64_t* __restrict a,
                                      const int64_t* __restrict b, int64_t base,
                                      size_t size, int64_t* __restrict best) {
  int64_t highest = kLowest;
  for (size_t j = 0; j < size; ++j) {
    best[j] = std::min(best[j], base + a[j] + b[j]);
    highest = std::max(highest, best[j]);
  }
  return highest;
}

TOFU_VECTOR_CLONES int64_t LowerToThree(const int64_t* __restrict a,
                                        const int64_t* __restrict b,
                                        const int64_t* __restrict c, int64_t base,
                                        size_t size, int64_t* __restrict best) {
  int64_t highest = kLowest;
  for (size_t j = 0; j < size; ++j) {
    best[j] = std::min(best[j], base + a[j] + b[j] + c[j]);
    highest = std::max(highest, best[j]);
  }
  return highest;
}

int64_t LowerToMany(const int64_t* const* rows, size_t num_rows, int64_t base,
                    size_t size, int64_t* best) {
  int64_t highest = kLowest;
  for (size_t j = 0; j < size; ++j) {
    int64_t sum = base;
    for (size_t t = 0; t < num_rows; ++t) sum += rows[t][j];
    best[j] = std::min(best[j], sum);
    highest = std::max(highest, best[j]);
  }
  return highest;
}

}  // namespace

int64_t LowerRow(const int64_t* const* rows, size_t num_rows, int64_t base, size_t size,
                 int64_t* best) {
  switch (num_rows) {
    case 0:
      return LowerToConstant(base, size, best);
    case 1:
      return LowerToOne(rows[0], base, size, best);
    case 2:
      return LowerToTwo(rows[0], rows[1], base, size, best);
    case 3:
      return LowerToThree(rows[0], rows[1], rows[2], base, size, best);
    default:
      return LowerToMany(rows, num_rows, base, size, best);
  }
}

}  // namespace tofu
