// Sizes of arrays, and walks over their indices, for tests of kernels, which know no
// graph.
#ifndef TOFU_TESTS_CPP_SUPPORT_INDICES_H_
#define TOFU_TESTS_CPP_SUPPORT_INDICES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/short_vector.h"

namespace tofu {

using Index = ShortVector<int64_t, 4>;

// The number of elements of an array of this shape.
inline int64_t Elements(const Index& shape) {
  int64_t elements = 1;
  for (int64_t extent : shape) elements *= extent;
  return elements;
}

// Calls `visit` with every index from `begin` to before `end` in all dimensions, in
// row-major order.
template <typename Visit>
void VisitIndices(const Index& begin, const Index& end, Visit visit) {
  for (size_t d = 0; d < begin.size(); ++d) {
    if (begin[d] >= end[d]) return;
  }
  Index index = begin;
  while (true) {
    visit(index);
    size_t d = index.size();
    while (d > 0 && ++index[d - 1] == end[d - 1]) {
      --d;
      index[d] = begin[d];
    }
    if (d == 0) return;
  }
}

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_INDICES_H_
