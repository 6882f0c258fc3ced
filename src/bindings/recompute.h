// Binds recompute.
#ifndef TOFU_BINDINGS_RECOMPUTE_H_
#define TOFU_BINDINGS_RECOMPUTE_H_

#include <pybind11/pybind11.h>

namespace tofu {

void BindRecompute(pybind11::module_* module);

}  // namespace tofu

#endif  // TOFU_BINDINGS_RECOMPUTE_H_
