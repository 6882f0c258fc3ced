// Makes random MultiFetches, and computes their results by a loop over elements.
#ifndef TOFU_TESTS_CPP_SUPPORT_RANDOM_FETCH_H_
#define TOFU_TESTS_CPP_SUPPORT_RANDOM_FETCH_H_

#include <cstdint>
#include <random>
#include <vector>

#include "fetch/multifetch_spec.h"

namespace tofu {

// A random grid of pieces for every term, each from a source that is larger. The
// numbers of the last dimension are multiples of `grain`, so that rows can be moved
// in vectors.
MultiFetchSpec RandomSpec(int dtype, std::mt19937* random, int64_t grain = 1);

// One array for every source, of integers that every type can represent, as well as their
// sums and products.
std::vector<std::vector<char>> SourceData(const MultiFetchSpec& spec);

// The expected region for SourceData.
std::vector<char> ExpectedRegion(const MultiFetchSpec& spec);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_RANDOM_FETCH_H_
