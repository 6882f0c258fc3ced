// Emitted kernels, compiled for the CPU (write_kernels.cc).
#ifndef TOFU_TESTS_CPP_EMITTED_EMITTED_KERNELS_H_
#define TOFU_TESTS_CPP_EMITTED_EMITTED_KERNELS_H_

namespace tofu {

// Runs a kernel with its own number of blocks and threads. `sources` has as many
// addresses as its TofuSources; only the generic kernel reads `boxes`.
using RunEmitted = void (*)(char* region, long long* done, const char* const* sources,
                            const long long* boxes);

struct EmittedKernel {
  RunEmitted own;  // null where the specification has no kernel of its own
  RunEmitted generic;
};

// In the order of EmittedSpecs().
extern const EmittedKernel kEmittedKernels[];

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_EMITTED_EMITTED_KERNELS_H_
