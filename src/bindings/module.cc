// The Python module tofu._core.
#include <pybind11/pybind11.h>

#include "base/side_threads.h"
#include "bindings/changed.h"
#include "bindings/documents.h"

namespace py = pybind11;

PYBIND11_MODULE(_core, module) {
  module.doc() = "The graph passes in C++, and the CUDA kernels of a fetch.";
  py::class_<tofu::SideThreads>(module, "SideThreads",
                                "Threads beside the one that hears Ctrl-C.")
      .def(py::init<>())
      .def("join", &tofu::SideThreads::Join)
      .def("end", &tofu::SideThreads::End);
  py::class_<tofu::Changed>(module, "Changed",
                            "Other values of an object's attributes in a with statement.")
      .def(py::init<py::object, py::kwargs>())
      .def("__enter__", &tofu::Changed::Enter)
      .def("__exit__", &tofu::Changed::Exit);
  tofu::BindErrors();
  tofu::BindGraph(&module);
  tofu::BindPlan(&module);
  tofu::BindStep(&module);
  tofu::BindProgram(&module);
  tofu::BindMemory(&module);
  tofu::BindRecompute(&module);
  tofu::BindSimulate(&module);
  tofu::BindKernels(&module);
  tofu::BindSolver(&module);
}
