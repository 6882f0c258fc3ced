// The passes as functions of JSON texts.
#ifndef TOFU_BINDINGS_PASSES_H_
#define TOFU_BINDINGS_PASSES_H_

#include <pybind11/pybind11.h>

namespace tofu {

void BindPasses(pybind11::module_* module);

}  // namespace tofu

#endif  // TOFU_BINDINGS_PASSES_H_
