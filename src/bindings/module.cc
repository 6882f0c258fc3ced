// The Python module tofu._core.
#include <pybind11/pybind11.h>

#include "bindings/documents.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The graph passes in C++, and the CUDA kernels of a fetch.";
  tofu::BindErrors();
  tofu::BindGraph(&module);
  tofu::BindPlan(&module);
  tofu::BindStep(&module);
  tofu::BindMemory(&module);
  tofu::BindRecompute(&module);
  tofu::BindSimulate(&module);
  tofu::BindKernels(&module);
  tofu::BindSolver(&module);
}
