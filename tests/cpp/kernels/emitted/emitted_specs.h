// The MultiFetches whose kernels the tests run: the program that writes the kernels
// and the tests that run them see the same ones, in the same order.
#ifndef TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_SPECS_H_
#define TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_SPECS_H_

#include <vector>

#include "kernels/multifetch_spec.h"

namespace tofu {

std::vector<MultiFetchSpec> EmittedSpecs();

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_SPECS_H_
