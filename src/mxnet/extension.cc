// MXNet's extension ABI, version 11 (MXNet 1.9): plain C, so building it needs
// nothing of MXNet. The signatures are those of include/mxnet/lib_api.h, with
// void* in place of types that only MXNet defines.
//
// It registers the two operators that NNVM's MXGradient pass creates by name
// and that MXNet 1.9 lacks: `zeros` (no gradient arrives) and `elemwise_sum`
// (several do). They only carry the structure of a graph; tofu.mx.graphs.gradient
// renames them to _zeros and add_n before any inference or execution.
// It also registers the operators of MultiFetch (multifetch_ops.h).
//
// Load it with MXLoadLib, not with mx.library.load: that one regenerates the
// Python operator modules, where our `zeros` would replace mx.nd.zeros.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "multifetch_ops.h"

#define TOFU_EXPORT __attribute__((visibility("default")))

namespace {

using tofu::FindOp;
using tofu::OpArrays;
using tofu::OpShapes;
using tofu::TofuOp;

constexpr int kLibraryVersion = 11;  // MX_LIBRARY_VERSION of lib_api.h
constexpr int kMinMxnetVersion = 10900;
constexpr int kEndMxnetVersion = 11000;
constexpr int kFail = 0;
constexpr int kSuccess = 1;

// Why the last call of this thread failed; MXNet adds it to its own error.
thread_local std::string g_message;

int Fail(const std::string& message) {
  g_message = message;
  return kFail;
}

// Calls `action` and turns an exception into a failure.
template <typename Action>
int Guarded(const char* op, const Action& action) {
  try {
    action();
    return kSuccess;
  } catch (const std::exception& error) {
    return Fail(std::string(op) + ": " + error.what());
  }
}

int FailPlaceholder() {
  return Fail(
      "tofu: 'zeros' and 'elemwise_sum' only mark places in a gradient graph and "
      "cannot be inferred or run; use _zeros and add_n");
}

// MXNet keeps these addresses as the operators' functions and hands them back
// to the _opCall functions below; nothing calls through them.
void ZerosPlaceholder() {}
void SumPlaceholder() {}

struct Placeholder {
  const char* name;
  void (*identity)();
};
constexpr Placeholder kPlaceholders[] = {
    {"zeros", ZerosPlaceholder},
    {"elemwise_sum", SumPlaceholder},
};

constexpr int kNumPlaceholders = sizeof(kPlaceholders) / sizeof(kPlaceholders[0]);

const char* kContexts[] = {"cpu", "gpu"};
constexpr int kNumContexts = 2;

const char* FindAttr(const char* key, const char* const* keys, const char* const* vals,
                     int num) {
  for (int i = 0; i < num; ++i) {
    if (std::strcmp(keys[i], key) == 0) return vals[i];
  }
  return nullptr;
}

using Function = void (*)();

template <typename T>
T* Allocate(size_t count) {
  return static_cast<T*>(std::malloc(count * sizeof(T)));
}

// Hands shapes to MXNet, which frees them with _opCallFree.
void GiveShapes(const std::vector<tofu::Extents>& shapes, unsigned int*** dims,
                int** num_dims) {
  *dims = Allocate<unsigned int*>(shapes.size());
  *num_dims = Allocate<int>(shapes.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    (*num_dims)[i] = static_cast<int>(shapes[i].size());
    (*dims)[i] = Allocate<unsigned int>(shapes[i].size());
    for (size_t d = 0; d < shapes[i].size(); ++d) {
      (*dims)[i][d] = static_cast<unsigned int>(shapes[i][d]);
    }
  }
}

}  // namespace

// The names are MXNet's.
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming)
extern "C" {

TOFU_EXPORT int _opVersion() { return kLibraryVersion; }

TOFU_EXPORT int initialize(int version) {
  if (version >= kMinMxnetVersion && version < kEndMxnetVersion) return kSuccess;
  return Fail("tofu: this MXNet is not 1.9; install mxnet==1.9.1 or mxnet-cu112==1.9.1");
}

TOFU_EXPORT int _msgSize() { return g_message.empty() ? 0 : 1; }

// MXNet copies the text at once, before it asks for another.
TOFU_EXPORT void _msgGet(int /*index*/, const char** message) {
  thread_local std::string text;
  text.swap(g_message);
  g_message.clear();
  *message = text.c_str();
}

TOFU_EXPORT int _opRegSize() {
  int count = kNumPlaceholders;
  while (FindOp(count - kNumPlaceholders) != nullptr) ++count;
  return count;
}

TOFU_EXPORT void _opRegGet(int index, const char** name, int* is_subgraph_op,
                           const char*** forward_contexts, Function** forward,
                           int* num_forward, const char*** backward_contexts,
                           Function** backward, int* num_backward,
                           const char*** state_contexts, Function** create_state,
                           int* num_create_state, Function* parse_attrs,
                           Function* infer_type, Function* infer_storage_type,
                           Function* infer_shape, Function* mutate_inputs) {
  static Function functions[kNumContexts];  // MXNet copies them
  const TofuOp* op = FindOp(index - kNumPlaceholders);
  const Function identity =
      index < kNumPlaceholders ? kPlaceholders[index].identity : op->identity;
  for (Function& function : functions) function = identity;
  *name = index < kNumPlaceholders ? kPlaceholders[index].name : op->name;
  *is_subgraph_op = 0;
  *forward_contexts = kContexts;
  *forward = functions;
  *num_forward = kNumContexts;
  *backward_contexts = nullptr;
  *backward = nullptr;
  *num_backward = 0;
  *state_contexts = nullptr;
  *create_state = nullptr;
  *num_create_state = 0;
  *parse_attrs = identity;
  *infer_type = identity;
  *infer_storage_type = nullptr;
  *infer_shape = identity;
  *mutate_inputs = nullptr;
}

TOFU_EXPORT void _opCallFree(void* memory) { std::free(memory); }

TOFU_EXPORT int _opCallParseAttrs(Function parse_attrs, const char* const* keys,
                                  const char* const* vals, int num, int* num_in,
                                  int* num_out) {
  if (const TofuOp* op = FindOp(parse_attrs); op != nullptr) {
    return Guarded(op->name, [&] { op->parse({keys, vals, num}, num_in, num_out); });
  }
  *num_in = 0;
  *num_out = 1;
  if (parse_attrs == SumPlaceholder) {
    const char* num_args = FindAttr("num_args", keys, vals, num);
    if (num_args == nullptr) return Fail("tofu: elemwise_sum without num_args");
    *num_in = static_cast<int>(std::strtol(num_args, nullptr, 10));
  }
  return kSuccess;
}

TOFU_EXPORT int _opCallInferShape(Function infer_shape, const char* const* keys,
                                  const char* const* vals, int num,
                                  unsigned int** in_dims, int* in_num_dims, int num_in,
                                  unsigned int*** known_dims, int** known_num_dims,
                                  unsigned int*** out_dims, int** out_num_dims,
                                  int /*num_out*/) {
  const TofuOp* op = FindOp(infer_shape);
  if (op == nullptr) return FailPlaceholder();
  OpShapes shapes;
  for (int i = 0; i < num_in; ++i) {
    if (in_num_dims[i] < 0) {
      return Fail(std::string(op->name) + ": the shape of input " + std::to_string(i) +
                  " is not known yet; bind the graph with the shapes of its variables");
    }
    shapes.inputs.emplace_back(in_dims[i], in_dims[i] + in_num_dims[i]);
  }
  return Guarded(op->name, [&] {
    op->infer_shapes({keys, vals, num}, &shapes);
    GiveShapes(shapes.inputs, known_dims, known_num_dims);
    GiveShapes(shapes.outputs, out_dims, out_num_dims);
  });
}

TOFU_EXPORT int _opCallInferType(Function infer_type, const char* const* keys,
                                 const char* const* vals, int num, int* in_types,
                                 int num_in, int* out_types, int /*num_out*/) {
  const TofuOp* op = FindOp(infer_type);
  if (op == nullptr) return FailPlaceholder();
  return Guarded(op->name, [&] {
    op->infer_dtypes({keys, vals, num}, in_types, num_in, out_types);
  });
}

TOFU_EXPORT int _opCallInferSType(Function, const char* const*, const char* const*, int,
                                  int*, int, int*, int) {
  return FailPlaceholder();
}

TOFU_EXPORT int _opCallFCompute(Function compute, const char* const* keys,
                                const char* const* vals, int num, const int64_t**, int*,
                                void** in_data, int*, size_t*, const char**, int*,
                                int num_in, const int64_t**, int*, void** out_data, int*,
                                size_t*, const char** out_device_types, int* out_devices,
                                int num_out, Function, void*, Function, void*,
                                void* stream, Function, void*, int*, int*, void**, void**,
                                void**, void**, int64_t*, int64_t*, int64_t*, int64_t*,
                                void*, void*) {
  const TofuOp* op = FindOp(compute);
  if (op == nullptr) return FailPlaceholder();
  const bool on_gpu = std::strcmp(out_device_types[0], "gpu") == 0;
  const OpArrays arrays{in_data, num_in,         out_data, num_out,
                        on_gpu,  out_devices[0], stream};
  return Guarded(op->name, [&] { op->compute({keys, vals, num}, arrays); });
}

TOFU_EXPORT int _opCallMutateInputs(Function, const char* const*, const char* const*, int,
                                    int**, int*) {
  return FailPlaceholder();
}

TOFU_EXPORT int _opCallCreateOpState(Function, const char* const*, const char* const*,
                                     int, const char*, int, unsigned int**, int*, int,
                                     const int*, void**) {
  return FailPlaceholder();
}

TOFU_EXPORT int _opCallDestroyOpState(void*) { return kSuccess; }

TOFU_EXPORT int _opCallFStatefulCompute(int, void*, const int64_t**, int*, void**, int*,
                                        size_t*, const char**, int*, int, const int64_t**,
                                        int*, void**, int*, size_t*, const char**, int*,
                                        int, Function, void*, Function, void*, void*,
                                        Function, void*, int*, int*, void**, void**,
                                        void**, void**, int64_t*, int64_t*, int64_t*,
                                        int64_t*, void*, void*) {
  return FailPlaceholder();
}

// No partitioners and no passes: MXNet asks for their number, but looks up all
// functions by name before it knows that there are none.
TOFU_EXPORT int _partRegSize() { return 0; }
TOFU_EXPORT int _partRegGetCount(int, const char**) { return 0; }
TOFU_EXPORT void _partRegGet(int, int, const char**, Function*, Function*, Function*,
                             const char**) {}
TOFU_EXPORT int _partCallSupportedOps() { return kFail; }
TOFU_EXPORT int _partCallCreateSelector() { return kFail; }
TOFU_EXPORT void _partCallSelect(void*, int, int*) {}
TOFU_EXPORT void _partCallSelectInput(void*, int, int, int*) {}
TOFU_EXPORT void _partCallSelectOutput(void*, int, int, int*) {}
TOFU_EXPORT void _partCallFilter(void*, int*, int, int**, int*) {}
TOFU_EXPORT void _partCallReset(void*) {}
TOFU_EXPORT int _partCallReviewSubgraph() { return kFail; }
TOFU_EXPORT int _passRegSize() { return 0; }
TOFU_EXPORT void _passRegGet(int, Function*, const char**) {}
TOFU_EXPORT int _passCallGraphPass() { return kFail; }

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)
