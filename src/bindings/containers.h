// Passes the project's containers and names between C++ and Python. All files of the
// bindings include this one (documents.h), so that they convert alike.
#ifndef TOFU_BINDINGS_CONTAINERS_H_
#define TOFU_BINDINGS_CONTAINERS_H_

#include <pybind11/stl.h>

#include "base/name.h"
#include "base/short_vector.h"

namespace pybind11::detail {

template <typename T, size_t kFew>
struct type_caster<tofu::ShortVector<T, kFew>>
    : list_caster<tofu::ShortVector<T, kFew>, T> {};

// Converts a name to a Python string; the other way is not supported.
template <>
struct type_caster<tofu::Name> {
  PYBIND11_TYPE_CASTER(tofu::Name, const_name("str"));

  static handle cast(tofu::Name name, return_value_policy /*policy*/, handle /*parent*/) {
    return str(name.text()).release();
  }
};

}  // namespace pybind11::detail

#endif  // TOFU_BINDINGS_CONTAINERS_H_
