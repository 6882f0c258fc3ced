// Runs a part of an executor's nodes: the forward half when the script calls its
// block, the backward half when the script has its head gradients. And joins nodes to
// segments, which the engine runs as one operator.
//
// MXNet's own Forward, Backward and InitOpSegs make the same calls, with bounds of its
// own. The functions take plain words, an executor's handle is the
// executor's address, and the symbols are looked up by name, in MXNet 1.9.1 only
// (tofu.mx.extension checks the version): nothing here depends on a layout.

#include <dlfcn.h>

#include <cstddef>
#include <exception>
#include <string>

#define TOFU_EXPORT __attribute__((visibility("default")))

namespace {

// mxnet::exec::GraphExecutor::RunOps(bool is_train, size_t begin, size_t end)
constexpr const char* kRunOps = "_ZN5mxnet4exec13GraphExecutor6RunOpsEbmm";

using RunOps = void (*)(void* executor, bool is_train, size_t begin, size_t end);

// mxnet::exec::GraphExecutor::BulkOpSegs(size_t begin, size_t end, size_t max_nodes)
constexpr const char* kBulkOpSegs = "_ZN5mxnet4exec13GraphExecutor10BulkOpSegsEmmm";

using BulkOpSegs = void (*)(void* executor, size_t begin, size_t end, size_t max_nodes);

RunOps run_ops = nullptr;
BulkOpSegs bulk_op_segs = nullptr;

}  // namespace

extern "C" {

// Returns whether the function is in the library at `path`.
TOFU_EXPORT int TofuRunPartOpen(const char* path) {
  void* library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  run_ops = reinterpret_cast<RunOps>(dlsym(library, kRunOps));
  bulk_op_segs = reinterpret_cast<BulkOpSegs>(dlsym(library, kBulkOpSegs));
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

// Joins the nodes numbered `begins[i]` to `ends[i]` - 1, all of one context, for each i.
// Call it before an executor runs, and TofuRunPartOpen before. Returns null, or what went
// wrong, valid until this thread's next call.
TOFU_EXPORT const char* TofuJoinNodes(void* executor, const size_t* begins,
                                      const size_t* ends, size_t count) {
  static thread_local std::string error;
  if (bulk_op_segs == nullptr) return nullptr;  // each node is run by itself
  try {
    for (size_t i = 0; i < count; ++i) {
      bulk_op_segs(executor, begins[i], ends[i], ends[i] - begins[i]);
    }
  } catch (const std::exception& caught) {
    error = caught.what();
    return error.c_str();
  }
  return nullptr;
}

}  // extern "C"
