// Turns C++ errors into Python exceptions: UserError becomes tofu.errors.GraphError or
// PlanError by blame; InternalError and anything unexpected becomes
// tofu.errors.InternalError. Memory errors and Python's own errors pass unchanged.
#include <pybind11/pybind11.h>

#include <cstring>
#include <exception>
#include <new>

#include "base/error.h"
#include "bindings/documents.h"
#include "fetch/multifetch_spec.h"
#include "kernels/shared_library.h"
#include "machine/machine.h"

namespace py = pybind11;

namespace tofu {
namespace {

const char* ClassName(Blame blame) {
  return blame == Blame::kPlan ? "PlanError" : "GraphError";
}

// Raises tofu.errors.<name>. The text may quote bytes from the user that end in the
// middle of a character.
void Raise(const char* name, const char* text) {
  const auto type = py::module_::import("tofu.errors").attr(name);
  const auto message = py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(std::strlen(text)), "replace"));
  if (message) PyErr_SetObject(type.ptr(), message.ptr());
}

// By value, as pybind11 calls it. NOLINTNEXTLINE(performance-unnecessary-value-param)
void Translate(std::exception_ptr pointer) {
  if (!pointer) return;
  try {
    std::rethrow_exception(pointer);
  } catch (const MachineError& error) {
    Raise("ConfigError", error.what());
  } catch (const UserError& error) {
    Raise(ClassName(error.blame()), error.what());
  } catch (const SpecError& error) {
    Raise("GraphError", error.what());
  } catch (const CudaError& error) {
    Raise("TofuError", error.what());
  } catch (const InternalError& error) {
    Raise("InternalError", error.what());
  } catch (const py::error_already_set&) {
    throw;
  } catch (const py::builtin_exception&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    Raise("InternalError", error.what());
  }
}

}  // namespace

void BindErrors() { py::register_local_exception_translator(&Translate); }

}  // namespace tofu
