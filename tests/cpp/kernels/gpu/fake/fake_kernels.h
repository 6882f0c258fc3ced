// Where fake_driver.cc finds the kernel of an image, which is the kernel's own text.
#ifndef TOFU_TESTS_CPP_KERNELS_GPU_FAKE_FAKE_KERNELS_H_
#define TOFU_TESTS_CPP_KERNELS_GPU_FAKE_FAKE_KERNELS_H_

#include "kernels/emitted/emitted_kernels.h"

namespace tofu {

// Null if there is none. May be called from several threads at once.
RunEmitted FindKernel(const char* image);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_KERNELS_GPU_FAKE_FAKE_KERNELS_H_
