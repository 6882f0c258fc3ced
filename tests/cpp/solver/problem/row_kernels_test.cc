#include "solver/problem/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace tofu {
namespace {

// Tests every length up to a few vectors of any processor, for every kernel.
TEST(RowKernels, LowerToTheSumOfAllRows) {
  const unsigned seed = 1;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int64_t> cost(-(int64_t{1} << 58), int64_t{1} << 58);
  for (size_t num_rows = 0; num_rows <= 5; ++num_rows) {
    for (size_t size = 0; size <= 40; ++size) {
      std::vector<std::vector<int64_t>> rows(num_rows, std::vector<int64_t>(size));
      std::vector<const int64_t*> pointers;
      for (std::vector<int64_t>& row : rows) {
        for (int64_t& cell : row) cell = cost(random);
        pointers.push_back(row.data());
      }
      std::vector<int64_t> best(size);
      for (int64_t& cell : best) cell = cost(random);
      const int64_t base = cost(random);
      std::vector<int64_t> expected = best;
      int64_t highest = std::numeric_limits<int64_t>::min();
      for (size_t j = 0; j < size; ++j) {
        int64_t sum = base;
        for (const std::vector<int64_t>& row : rows) sum += row[j];
        expected[j] = std::min(expected[j], sum);
        highest = std::max(highest, expected[j]);
      }
      EXPECT_EQ(LowerRow(pointers.data(), num_rows, base, size, best.data()), highest);
      EXPECT_EQ(best, expected) << num_rows << " rows of " << size;
    }
  }
}

}  // namespace
}  // namespace tofu
