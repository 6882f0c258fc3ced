// Teaches MXNet 1.9.1 the shapes and dtypes of backward operators.
//
// MXNet gives most backward operators no shape function: it copies the shapes
// from the forward operator that the node's first control dependency names,
// which must have exactly matching shapes and live in the same executor. A
// partitioned backward operator has no such partner. Here, while a partitioned
// graph is bound, the empty FInferShape and FInferType slots of backward
// operators hold functions that look the node's name up in a table, which
// Python fills from the partitioned graph. Afterwards the slots are empty again.
//
// This is the one place that touches memory of libmxnet.so whose layout is not
// part of a public ABI. GCC 4.8 built that library, so its std::string and
// std::function are not ours: this file is compiled with the old string ABI and
// handles everything else as plain words. Four guards keep it safe:
//   1. only MXNet 1.9.1, asked from the library itself;
//   2. memory is first read through a pipe, which fails instead of crashing;
//   3. names and indices of all operators must agree with the layout;
//   4. only slots that are empty are ever written; the rest is never touched.
// tofu.mx.runtime adds a fifth: an inference on real operators, checked.

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "safe_reader.h"

#define TOFU_EXPORT __attribute__((visibility("default")))

namespace {

using tofu::SafeReader;

constexpr int kMxnetVersion = 10901;

// --- Layouts inside libmxnet.so ---------------------------------------------

// mxnet::TShape
struct RawShape {
  static constexpr int kStackDims = 4;
  int32_t num_dims;  // -1: unknown
  int32_t num_heap_dims;
  int64_t stack_dims[kStackDims];
  int64_t* heap_dims;
};
static_assert(sizeof(RawShape) == 48, "mxnet::TShape takes 48 bytes");

// std::vector<T>
template <typename T>
struct RawVector {
  T* begin;
  T* end;
  T* end_of_storage;
};

// std::function of GCC 4.8: by-value arguments reach the invoker by value.
using Manager = bool (*)(void* target, const void* source, int operation);
using Invoker = bool (*)(const void* functor, const void* attrs, void* in, void* out);

// One element of OpMap<std::function<...>>: a function and its priority level,
// 0 where nothing is registered.
struct Slot {
  void* functor[2];
  Manager manager;
  Invoker invoker;
  int32_t level;
  int32_t padding;
};
static_assert(sizeof(Slot) == 40, "an operator map's slot takes 40 bytes");

// One element of OpMap<bool>.
struct Flag {
  bool value;
  int32_t level;
};
static_assert(sizeof(Flag) == 8, "a flag's slot takes 8 bytes");

// nnvm::OpMap<T>
template <typename T>
struct RawOpMap {
  const char* name;
  RawVector<T> slots;
};

// dmlc::any with its content on the heap
struct RawAny {
  const void* type;
  void* content;
};

// nnvm::Op; its name is a string of the old ABI, a pointer to the text.
struct RawOp {
  const char* name;
  char others[144];
  uint32_t index;
  uint32_t padding;
};
static_assert(sizeof(RawOp) == 160, "nnvm::Op::index_ lies at byte 152");

constexpr uint32_t kMaxOps = 1 << 16;

// --- The table --------------------------------------------------------------

struct Taught {
  std::vector<std::vector<int64_t>> shapes;  // per output
  std::vector<int> dtypes;
};

std::unordered_map<std::string, Taught>& Table() {
  static auto* table = new std::unordered_map<std::string, Taught>;
  return *table;
}

const Taught* Find(const void* attrs) {
  // nnvm::NodeAttrs starts with the operator and the node's name, whose string
  // (old ABI) is a pointer to its text.
  const char* name = static_cast<const char* const*>(attrs)[1];
  const auto it = Table().find(name);
  return it == Table().end() ? nullptr : &it->second;
}

void Assign(const std::vector<int64_t>& dims, RawShape* shape) {
  const auto num_dims = static_cast<int32_t>(dims.size());
  int64_t* target = shape->stack_dims;
  if (num_dims > RawShape::kStackDims) {
    if (num_dims > shape->num_heap_dims) {
      delete[] shape->heap_dims;
      shape->heap_dims = new int64_t[dims.size()];
      shape->num_heap_dims = num_dims;
    }
    target = shape->heap_dims;
  }
  std::copy(dims.begin(), dims.end(), target);
  shape->num_dims = num_dims;
}

bool InferTaughtShape(const void* /*functor*/, const void* attrs, void* /*in*/,
                      void* out) {
  const Taught* taught = Find(attrs);
  if (taught == nullptr) return false;
  auto* shapes = static_cast<RawVector<RawShape>*>(out);
  const auto num_outputs = static_cast<size_t>(shapes->end - shapes->begin);
  for (size_t i = 0; i < std::min(num_outputs, taught->shapes.size()); ++i) {
    Assign(taught->shapes[i], shapes->begin + i);
  }
  return true;
}

bool InferTaughtDtype(const void* /*functor*/, const void* attrs, void* /*in*/,
                      void* out) {
  const Taught* taught = Find(attrs);
  if (taught == nullptr) return false;
  auto* dtypes = static_cast<RawVector<int32_t>*>(out);
  const auto num_outputs = static_cast<size_t>(dtypes->end - dtypes->begin);
  for (size_t i = 0; i < std::min(num_outputs, taught->dtypes.size()); ++i) {
    dtypes->begin[i] = taught->dtypes[i];
  }
  return true;
}

// The functors are empty, so copying and destroying them takes nothing.
bool ManageNothing(void* /*target*/, const void* /*source*/, int /*operation*/) {
  return false;
}

// --- Finding the slots ------------------------------------------------------

struct Mxnet {
  int (*get_version)(int*) = nullptr;
  int (*list_op_names)(uint32_t*, const char***) = nullptr;
  int (*get_op)(const char*, void**) = nullptr;
  const void* (*get_attr_map)(const std::string&) = nullptr;
};

struct BackwardOp {
  std::string name;
  uint32_t index;
};

struct State {
  std::vector<BackwardOp> backward_ops;
  RawOpMap<Slot>* shape_functions = nullptr;
  RawOpMap<Slot>* dtype_functions = nullptr;
  std::vector<Slot*> filled;
  std::vector<BackwardOp> stateful;
  bool is_open = false;
};

State& GetState() {
  static auto* state = new State;
  return *state;
}

template <typename F>
bool Load(void* library, const char* symbol, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, symbol));
  return *function != nullptr;
}

std::string FindMxnet(const char* path, Mxnet* mxnet) {
  void* library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) {
    return std::string("no library is loaded from ") + path;
  }
  if (!Load(library, "MXGetVersion", &mxnet->get_version) ||
      !Load(library, "MXListAllOpNames", &mxnet->list_op_names) ||
      !Load(library, "NNGetOpHandle", &mxnet->get_op) ||
      !Load(library, "_ZN4nnvm2Op10GetAttrMapERKSs", &mxnet->get_attr_map)) {
    return std::string(path) + " does not export the functions of MXNet 1.9.1";
  }
  int version = 0;
  if (mxnet->get_version(&version) != 0 || version != kMxnetVersion) {
    return "MXNet says it is version " + std::to_string(version) + ", expected " +
           std::to_string(kMxnetVersion) + " (1.9.1)";
  }
  return "";
}

// The map of an operator attribute, or null when memory does not look like one.
template <typename T>
RawOpMap<T>* FindOpMap(const Mxnet& mxnet, const SafeReader& reader, const char* name) {
  const void* any_map = mxnet.get_attr_map(name);
  RawAny any;
  RawOpMap<T> map;
  if (any_map == nullptr || !reader.Read(any_map, &any, sizeof(any)) ||
      !reader.Read(any.content, &map, sizeof(map)) || !reader.TextIs(map.name, name)) {
    return nullptr;
  }
  const auto num_bytes = reinterpret_cast<uintptr_t>(map.slots.end) -
                         reinterpret_cast<uintptr_t>(map.slots.begin);
  if (num_bytes % sizeof(T) != 0 || num_bytes / sizeof(T) > kMaxOps) return nullptr;
  std::vector<char> copy(num_bytes);
  if (!reader.Read(map.slots.begin, copy.data(), num_bytes)) return nullptr;
  return static_cast<RawOpMap<T>*>(any.content);
}

template <typename T>
const T* SlotOf(const RawOpMap<T>& map, uint32_t index) {
  return index < static_cast<size_t>(map.slots.end - map.slots.begin)
             ? map.slots.begin + index
             : nullptr;
}

template <typename T>
bool IsRegistered(const RawOpMap<T>& map, uint32_t index) {
  const T* slot = SlotOf(map, index);
  return slot != nullptr && slot->level > 0;
}

// Every operator's index, read from its memory. Empty when the layout differs:
// a name is not where it should be, or two operators share an index.
std::unordered_map<std::string, uint32_t> OpIndices(const Mxnet& mxnet,
                                                    const SafeReader& reader) {
  uint32_t num_names = 0;
  const char** names = nullptr;
  if (mxnet.list_op_names(&num_names, &names) != 0) return {};
  std::vector<std::string> all(names, names + num_names);
  std::unordered_map<std::string, uint32_t> indices;
  std::unordered_map<uint32_t, const void*> ops;
  for (const std::string& name : all) {
    void* op = nullptr;
    RawOp raw;
    if (mxnet.get_op(name.c_str(), &op) != 0 || !reader.Read(op, &raw, sizeof(raw))) {
      return {};
    }
    if (raw.index >= kMaxOps || ops.emplace(raw.index, op).first->second != op) return {};
    if (reader.TextIs(raw.name, name.c_str())) indices.emplace(name, raw.index);
  }
  // Every operator is listed under its own name, and perhaps under others.
  if (indices.size() != ops.size()) return {};
  return indices;
}

std::string Open(const char* path) {
  State& state = GetState();
  Mxnet mxnet;
  std::string problem = FindMxnet(path, &mxnet);
  if (!problem.empty()) return problem;
  const SafeReader reader;
  state.shape_functions = FindOpMap<Slot>(mxnet, reader, "FInferShape");
  state.dtype_functions = FindOpMap<Slot>(mxnet, reader, "FInferType");
  const auto* is_backward = FindOpMap<Flag>(mxnet, reader, "TIsBackward");
  const auto* is_stateful = FindOpMap<Flag>(mxnet, reader, "TIsLayerOpBackward");
  if (state.shape_functions == nullptr || state.dtype_functions == nullptr ||
      is_backward == nullptr || is_stateful == nullptr) {
    return "the operator maps of this MXNet have another memory layout than expected";
  }
  const auto indices = OpIndices(mxnet, reader);
  const auto forward = indices.find("FullyConnected");
  const auto backward = indices.find("_backward_FullyConnected");
  if (forward == indices.end() || backward == indices.end() ||
      IsRegistered(*is_backward, forward->second) ||
      !IsRegistered(*is_backward, backward->second) ||
      !IsRegistered(*state.shape_functions, forward->second) ||
      IsRegistered(*state.shape_functions, backward->second)) {
    return "the operators of this MXNet have another memory layout than expected";
  }
  for (const auto& [name, index] : indices) {
    if (IsRegistered(*is_backward, index)) state.backward_ops.push_back({name, index});
    if (IsRegistered(*is_stateful, index)) state.stateful.push_back({name, index});
  }
  state.is_open = true;
  return "";
}

void Fill(RawOpMap<Slot>* map, Invoker invoker) {
  State& state = GetState();
  for (const BackwardOp& op : state.backward_ops) {
    if (op.index >= static_cast<size_t>(map->slots.end - map->slots.begin)) continue;
    Slot* slot = map->slots.begin + op.index;
    if (slot->level != 0 || slot->manager != nullptr) continue;
    *slot = Slot{{nullptr, nullptr}, ManageNothing, invoker, 1, 0};
    state.filled.push_back(slot);
  }
}

}  // namespace

extern "C" {

// Looks the slots up in the libmxnet.so at `path`, once. Returns null, or why
// MXNet cannot be taught.
TOFU_EXPORT const char* TofuTeachOpen(const char* path) {
  static std::string problem;
  if (GetState().is_open) return nullptr;
  problem = Open(path);
  return problem.empty() ? nullptr : problem.c_str();
}

// The i-th backward operator that reads the state its forward operator left in
// the same executor, or null behind the last.
TOFU_EXPORT const char* TofuTeachStatefulOp(int i) {
  const auto& stateful = GetState().stateful;
  return i < static_cast<int>(stateful.size()) ? stateful[i].name.c_str() : nullptr;
}

// Adds a node. `num_dims` has one entry an output, `dims` all dimensions one
// after the other.
TOFU_EXPORT void TofuTeachNode(const char* name, int num_outputs, const int* num_dims,
                               const int64_t* dims, const int* dtypes) {
  Taught taught;
  for (int i = 0; i < num_outputs; ++i) {
    taught.shapes.emplace_back(dims, dims + num_dims[i]);
    taught.dtypes.push_back(dtypes[i]);
    dims += num_dims[i];
  }
  Table()[name] = std::move(taught);
}

// Fills the empty slots. Returns how many, 0 when TofuTeachOpen has not
// succeeded. The caller holds a lock until TofuTeachEnd.
TOFU_EXPORT int TofuTeachBegin() {
  State& state = GetState();
  if (!state.is_open || !state.filled.empty()) return 0;
  Fill(state.shape_functions, InferTaughtShape);
  Fill(state.dtype_functions, InferTaughtDtype);
  return static_cast<int>(state.filled.size());
}

// Empties the slots and the table.
TOFU_EXPORT void TofuTeachEnd() {
  State& state = GetState();
  for (Slot* slot : state.filled) *slot = Slot{};
  state.filled.clear();
  Table().clear();
}

}  // extern "C"
