// From a specification to a kernel that a device can load.
//
// Errors: CudaError and SpecError if even the generic kernel does not compile.
#ifndef TOFU_KERNELS_CUDA_COMPILE_H_
#define TOFU_KERNELS_CUDA_COMPILE_H_

#include <functional>
#include <string>

#include "kernels/cuda_source.h"
#include "kernels/kernel_cache.h"
#include "kernels/nvrtc.h"

namespace tofu {

struct CompiledFetch {
  CudaKernel kernel;
  std::string image;  // for the driver
  std::string
      problem;  // why this is the generic kernel; empty for the specification's own
};

// Compiles the specification's own kernel, or the generic one if it has none or
// `compile` throws a CudaError for it.
CompiledFetch CompileFetch(
    const MultiFetchSpec& spec,
    const std::function<std::string(const CudaKernel& kernel)>& compile);

// A kernel's image for a device of compute capability `arch`: the one in `cache`, else
// a new one, which is added to it.
std::string CompileKernel(const CudaKernel& kernel, int arch, const Nvrtc& nvrtc,
                          const KernelCache& cache);

}  // namespace tofu

#endif  // TOFU_KERNELS_CUDA_COMPILE_H_
