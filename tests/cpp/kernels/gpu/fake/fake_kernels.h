// Finds the kernel of an image, which is the kernel's own text, for fake_driver.cc.
#ifndef TOFU_TESTS_CPP_KERNELS_GPU_FAKE_FAKE_KERNELS_H_
#define TOFU_TESTS_CPP_KERNELS_GPU_FAKE_FAKE_KERNELS_H_

#include "kernels/emitted/emitted_kernels.h"

namespace tofu {

// Returns the kernel, or null. May be called from several threads at once.
RunEmitted FindKernel(const char* image);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_KERNELS_GPU_FAKE_FAKE_KERNELS_H_
