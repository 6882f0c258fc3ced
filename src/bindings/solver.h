// The solver of problems with memory limits, and its progress reports.
#ifndef TOFU_BINDINGS_SOLVER_H_
#define TOFU_BINDINGS_SOLVER_H_

#include <pybind11/pybind11.h>

namespace tofu {

void BindSolver(pybind11::module_* module);

}  // namespace tofu

#endif  // TOFU_BINDINGS_SOLVER_H_
