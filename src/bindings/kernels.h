// The CUDA kernels of MultiFetch, as text and compiled.
#ifndef TOFU_BINDINGS_KERNELS_H_
#define TOFU_BINDINGS_KERNELS_H_

#include <pybind11/pybind11.h>

namespace tofu {

void BindKernels(pybind11::module_* module);

}  // namespace tofu

#endif  // TOFU_BINDINGS_KERNELS_H_
