// Attributes that have other values inside a with statement, whenever Ctrl-C comes.
#ifndef TOFU_BINDINGS_CHANGED_H_
#define TOFU_BINDINGS_CHANGED_H_

#include <pybind11/pybind11.h>

#include <utility>

namespace tofu {

// In C++, because Python may raise KeyboardInterrupt before the first line of each
// function in Python, so also of an __exit__ and of what contextlib calls: it would
// restore nothing.
class Changed {
 public:
  Changed(pybind11::object target, pybind11::kwargs values)
      : target_(std::move(target)), values_(std::move(values)) {}

  void Enter() {
    for (const auto& [name, value] : values_)
      before_[name] = pybind11::getattr(target_, name);
    Set(values_);
  }

  void Exit(const pybind11::args& /*error*/) { Set(before_); }

 private:
  void Set(const pybind11::dict& values) {
    for (const auto& [name, value] : values) pybind11::setattr(target_, name, value);
  }

  const pybind11::object target_;
  const pybind11::dict values_;
  pybind11::dict before_;
};

}  // namespace tofu

#endif  // TOFU_BINDINGS_CHANGED_H_
