// The CUDA kernels of MultiFetch for Python, as text and compiled.

#include <optional>
#include <string>

#include "bindings/documents.h"
#include "kernels/cuda_compile.h"
#include "kernels/cuda_generic.h"

namespace py = pybind11;

namespace tofu {
namespace {

py::dict EmitKernel(const std::string& text, bool generic) {
  const MultiFetchSpec spec = ReadSpec(text);
  const std::optional<CudaKernel> own = generic ? std::nullopt : EmitCuda(spec);
  const CudaKernel kernel = own.has_value() ? *own : EmitGenericCuda(spec);
  py::dict result;
  result["name"] = kernel.name;
  result["source"] = kernel.source;
  result["blocks"] = kernel.blocks;
  result["threads"] = kernel.threads;
  result["num_sources"] = kernel.num_sources;
  result["boxes"] = kernel.boxes;
  return result;
}

py::bytes Compile(const std::string& source, int arch, const std::string& library,
                  const std::string& folder) {
  std::string image;
  {
    const py::gil_scoped_release unlock;
    CudaKernel kernel;
    kernel.source = source;
    image = CompileKernel(kernel, arch, Nvrtc(library), KernelCache(folder));
  }
  return image;
}

}  // namespace

void BindKernels(py::module_* module) {
  module->def("cuda_kernel", &EmitKernel, py::arg("spec"), py::kw_only(),
              py::arg("generic") = false, "The CUDA kernel of one MultiFetch.");
  module->def("compile_cuda", &Compile, py::arg("source"), py::kw_only(), py::arg("arch"),
              py::arg("library") = "", py::arg("folder") = "",
              "Compile a kernel with NVRTC.");
}

}  // namespace tofu
