#include "kernels/cuda_compile.h"

#include <optional>
#include <utility>

#include "kernels/cuda_generic.h"

namespace tofu {

CompiledFetch CompileFetch(
    const MultiFetchSpec& spec,
    const std::function<std::string(const CudaKernel& kernel)>& compile) {
  CompiledFetch compiled;
  if (std::optional<CudaKernel> own = EmitCuda(spec)) {
    try {
      compiled.image = compile(*own);
      compiled.kernel = std::move(*own);
      return compiled;
    } catch (const CudaError& error) {
      compiled.problem = error.what();
    }
  } else {
    compiled.problem = "too many boxes for a specialized kernel";
  }
  compiled.kernel = EmitGenericCuda(spec);
  compiled.image = compile(compiled.kernel);
  return compiled;
}

std::string CompileKernel(const CudaKernel& kernel, int arch, const Nvrtc& nvrtc,
                          const KernelCache& cache) {
  const std::string target = nvrtc.Target(arch);
  const std::string key = target + ", NVRTC " + nvrtc.version() + "\n" + kernel.source;
  if (std::optional<std::string> kept = cache.Find(key)) return *std::move(kept);
  std::string image = nvrtc.Compile(kernel.source, target);
  cache.Keep(key, image);
  return image;
}

}  // namespace tofu
