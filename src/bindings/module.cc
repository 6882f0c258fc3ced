// The Python module tofu._core.
#include <pybind11/pybind11.h>

#include "bindings/errors.h"
#include "bindings/kernels.h"
#include "bindings/memory.h"
#include "bindings/passes.h"
#include "bindings/solver.h"

PYBIND11_MODULE(_core, module) {
  module.doc() =
      "The graph passes in C++, texts in, texts out, all of them JSON; CUDA kernels.";
  tofu::BindErrors();
  tofu::BindPasses(&module);
  tofu::BindMemory(&module);
  tofu::BindKernels(&module);
  tofu::BindSolver(&module);
}
