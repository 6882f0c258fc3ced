// Marks a long C++ computation that Python has called.
#ifndef TOFU_BINDINGS_INTERRUPTIBLE_H_
#define TOFU_BINDINGS_INTERRUPTIBLE_H_

#include <pybind11/pybind11.h>

#include "base/interrupt.h"

namespace tofu {

// While one exists, Python's other threads run, and Ctrl-C ends the computation with
// Python's KeyboardInterrupt. Python hears signals on its main thread only.
class Interruptible {
 public:
  Interruptible() : interrupt_(&RaiseSignals) {}

 private:
  static void RaiseSignals() {
    const pybind11::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
  }

  const pybind11::gil_scoped_release unlock_;
  const InterruptScope interrupt_;
};

}  // namespace tofu

#endif  // TOFU_BINDINGS_INTERRUPTIBLE_H_
