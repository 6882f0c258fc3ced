// Runs a part of an executor's nodes: the forward half when the script calls its
// block, the backward half when the script has its head gradients.
//
// MXNet's own Forward and Backward make the same call, with bounds from its own
// gradient pass. The function takes plain words, an executor's handle is the
// executor's address, and the symbol is looked up by name, in MXNet 1.9.1 only
// (tofu.mx.run.extension checks the version): nothing here depends on a layout.

#include <dlfcn.h>

#include <cstddef>
#include <exception>
#include <string>

#define TOFU_EXPORT __attribute__((visibility("default")))

namespace {

// mxnet::exec::GraphExecutor::RunOps(bool is_train, size_t begin, size_t end)
constexpr const char* kRunOps = "_ZN5mxnet4exec13GraphExecutor6RunOpsEbmm";

using RunOps = void (*)(void* executor, bool is_train, size_t begin, size_t end);

RunOps run_ops = nullptr;

}  // namespace

extern "C" {

// Returns whether the function is in the library at `path`.
TOFU_EXPORT int TofuRunPartOpen(const char* path) {
  void* library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  run_ops = reinterpret_cast<RunOps>(dlsym(library, kRunOps));
  return run_ops == nullptr ? 0 : 1;
}

// Pushes the nodes numbered `begin` to `end` - 1. Returns null, or what went wrong,
// valid until this thread's next call.
TOFU_EXPORT const char* TofuRunPart(void* executor, int is_train, size_t begin,
                                    size_t end) {
  static thread_local std::string error;
  try {
    run_ops(executor, is_train != 0, begin, end);
  } catch (const std::exception& caught) {
    error = caught.what();
    return error.c_str();
  }
  return nullptr;
}

}  // extern "C"
