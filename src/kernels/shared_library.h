// CUDA's libraries, opened at run time: tofu builds, and runs on CPUs, without them.
//
// Errors: CudaError, which says what is missing and what to do.
#ifndef TOFU_KERNELS_SHARED_LIBRARY_H_
#define TOFU_KERNELS_SHARED_LIBRARY_H_

#include <dlfcn.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace tofu {

class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Stays open until the process ends, because its kernels and threads may live so long.
class SharedLibrary {
 public:
  // The first of `names` that this process has loaded, else the first that can be
  // loaded. `advice` ends the message if there is none.
  SharedLibrary(const std::vector<std::string>& names, const std::string& advice) {
    for (const int flags : {RTLD_NOW | RTLD_NOLOAD, RTLD_NOW}) {
      for (const std::string& name : names) {
        if (handle_ == nullptr) handle_ = dlopen(name.c_str(), flags);
        if (handle_ != nullptr && name_.empty()) name_ = name;
      }
    }
    if (handle_ == nullptr) {
      throw CudaError("found no " + names.front() + "; " + advice);
    }
  }

  // Sets `function` to the function called `name`.
  template <typename Function>
  void Find(const char* name, Function** function) const {
    *function = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (*function == nullptr) {
      throw CudaError("found no " + std::string(name) + " in " + name_ +
                      ", expected CUDA 11.2 or later");
    }
  }

 private:
  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace tofu

#endif  // TOFU_KERNELS_SHARED_LIBRARY_H_
