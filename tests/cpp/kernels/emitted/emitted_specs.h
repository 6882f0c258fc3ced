// Lists the MultiFetches whose kernels the tests run. The program that writes the kernels
// and the tests that run them use the same list in the same order.
#ifndef TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_SPECS_H_
#define TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_SPECS_H_

#include <vector>

#include "fetch/multifetch_spec.h"

namespace tofu {

std::vector<MultiFetchSpec> EmittedSpecs();

// Regions of more than 4 GiB and 2^31 elements, in rows of one source.
struct WideSpec {
  const char* text;
  int64_t row_bytes;
  int64_t from_row_bytes;
  int64_t skipped_bytes;  // skipped at the begin of every row of the source
};
std::vector<WideSpec> WideSpecs();

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_SPECS_H_
