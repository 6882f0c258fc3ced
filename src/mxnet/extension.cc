// MXNet's extension ABI, version 11 (MXNet 1.9): plain C, so nothing of MXNet
// is needed to build it. The signatures are those of include/mxnet/lib_api.h,
// with types that only MXNet's own side knows as void*.
//
// It registers the two operators that NNVM's MXGradient pass creates by name
// and that MXNet 1.9 lacks: `zeros` (no gradient arrives) and `elemwise_sum`
// (several do). They carry the structure of a graph only; tofu.mx.gradient
// renames them to _zeros and add_n before any inference or execution.
//
// Load it with MXLoadLib, not with mx.library.load: that one regenerates the
// Python operator modules, where our `zeros` would replace mx.nd.zeros.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define TOFU_EXPORT __attribute__((visibility("default")))

namespace {

constexpr int kLibraryVersion = 11;  // MX_LIBRARY_VERSION of lib_api.h
constexpr int kMinMxnetVersion = 10900;
constexpr int kEndMxnetVersion = 11000;
constexpr int kFail = 0;
constexpr int kSuccess = 1;

// Why the last call failed; MXNet adds it to its own error.
const char* g_message = nullptr;

int Fail(const char* message) {
  g_message = message;
  return kFail;
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

}  // namespace

// The names are MXNet's.
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming)
extern "C" {

TOFU_EXPORT int _opVersion() { return kLibraryVersion; }

TOFU_EXPORT int initialize(int version) {
  if (version >= kMinMxnetVersion && version < kEndMxnetVersion) return kSuccess;
  return Fail("tofu: this MXNet is not 1.9; install mxnet==1.9.1 or mxnet-cu112==1.9.1");
}

TOFU_EXPORT int _msgSize() { return g_message == nullptr ? 0 : 1; }

TOFU_EXPORT void _msgGet(int /*index*/, const char** message) {
  *message = g_message == nullptr ? "" : g_message;
  g_message = nullptr;
}

TOFU_EXPORT int _opRegSize() {
  return static_cast<int>(sizeof(kPlaceholders) / sizeof(kPlaceholders[0]));
}

TOFU_EXPORT void _opRegGet(int index, const char** name, int* is_subgraph_op,
                           const char*** forward_contexts, Function** forward,
                           int* num_forward, const char*** backward_contexts,
                           Function** backward, int* num_backward,
                           const char*** state_contexts, Function** create_state,
                           int* num_create_state, Function* parse_attrs,
                           Function* infer_type, Function* infer_storage_type,
                           Function* infer_shape, Function* mutate_inputs) {
  static Function functions[sizeof(kPlaceholders) / sizeof(kPlaceholders[0])]
                           [kNumContexts];
  const Placeholder& placeholder = kPlaceholders[index];
  for (Function& function : functions[index]) function = placeholder.identity;
  *name = placeholder.name;
  *is_subgraph_op = 0;
  *forward_contexts = kContexts;
  *forward = functions[index];
  *num_forward = kNumContexts;
  *backward_contexts = nullptr;
  *backward = nullptr;
  *num_backward = 0;
  *state_contexts = nullptr;
  *create_state = nullptr;
  *num_create_state = 0;
  *parse_attrs = placeholder.identity;
  *infer_type = placeholder.identity;
  *infer_storage_type = nullptr;
  *infer_shape = placeholder.identity;
  *mutate_inputs = nullptr;
}

TOFU_EXPORT void _opCallFree(void* memory) { std::free(memory); }

TOFU_EXPORT int _opCallParseAttrs(Function parse_attrs, const char* const* keys,
                                  const char* const* vals, int num, int* num_in,
                                  int* num_out) {
  *num_in = 0;
  *num_out = 1;
  if (parse_attrs == SumPlaceholder) {
    const char* num_args = FindAttr("num_args", keys, vals, num);
    if (num_args == nullptr) return Fail("tofu: elemwise_sum without num_args");
    *num_in = static_cast<int>(std::strtol(num_args, nullptr, 10));
  }
  return kSuccess;
}

TOFU_EXPORT int _opCallInferShape(Function, const char* const*, const char* const*, int,
                                  unsigned int**, int*, int, unsigned int***, int**,
                                  unsigned int***, int**, int) {
  return FailPlaceholder();
}

TOFU_EXPORT int _opCallInferType(Function, const char* const*, const char* const*, int,
                                 int*, int, int*, int) {
  return FailPlaceholder();
}

TOFU_EXPORT int _opCallInferSType(Function, const char* const*, const char* const*, int,
                                  int*, int, int*, int) {
  return FailPlaceholder();
}

TOFU_EXPORT int _opCallFCompute(Function, const char* const*, const char* const*, int,
                                const int64_t**, int*, void**, int*, size_t*,
                                const char**, int*, int, const int64_t**, int*, void**,
                                int*, size_t*, const char**, int*, int, Function, void*,
                                Function, void*, void*, Function, void*, int*, int*,
                                void**, void**, void**, void**, int64_t*, int64_t*,
                                int64_t*, int64_t*, void*, void*) {
  return FailPlaceholder();
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

// No partitioners and no passes: MXNet asks for their number, and looks all
// functions up by name before it knows that there are none.
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
