// The MultiFetches whose kernels the tests run. The program that writes the kernels and
// the tests that run them use the same list in the same order.
#ifndef TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_SPECS_H_
#define TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_SPECS_H_

#include <vector>

#include "kernels/multifetch_spec.h"

namespace tofu {

std::vector<MultiFetchSpec> EmittedSpecs();

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_SPECS_H_
