// What executors will allocate: graphs that stay in C++, and the model of MXNet's
// planner.
#ifndef TOFU_BINDINGS_MEMORY_H_
#define TOFU_BINDINGS_MEMORY_H_

#include <pybind11/pybind11.h>

namespace tofu {

void BindMemory(pybind11::module_* module);

}  // namespace tofu

#endif  // TOFU_BINDINGS_MEMORY_H_
