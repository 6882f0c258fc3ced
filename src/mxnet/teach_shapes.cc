// Teaches MXNet 1.9.1 the shapes and dtypes of backward operators.
//
// MXNet gives most backward operators no shape function: it copies the shapes
// from the forward operator that the node's first control dependency names,
// which must have exactly matching shapes and live in the same executor. A
// partitioned backward operator has no such partner. So while a partitioned
// graph is bound, the empty FInferShape and FInferType slots of backward
// operators hold functions that look up the node's name in a table, which
// Python fills from the partitioned graph. Afterwards the slots are empty again.
//
// This file writes to memory of libmxnet.so whose layout is not part of a public
// ABI (op_maps.h). Four guards keep it safe:
//   1. only MXNet 1.9.1, as the library itself reports;
//   2. memory is first read through a pipe, which fails instead of crashing;
//   3. names and indices of all operators must match the layout;
//   4. only empty slots are ever written; the rest is never touched.
// tofu.mx.extension adds a fifth: it checks an inference on real operators.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "op_maps.h"
#include "safe_reader.h"

#define TOFU_EXPORT __attribute__((visibility("default")))

namespace {

using tofu::FindMxnet;
using tofu::FindOpMap;
using tofu::Flag;
using tofu::Invoker;
using tofu::IsRegistered;
using tofu::Mxnet;
using tofu::OpIndices;
using tofu::RawOpMap;
using tofu::RawVector;
using tofu::SafeReader;
using tofu::Slot;

// mxnet::TShape
struct RawShape {
  static constexpr int kStackDims = 4;
  int32_t num_dims;  // -1: unknown
  int32_t num_heap_dims;
  int64_t stack_dims[kStackDims];
  int64_t* heap_dims;
};
static_assert(sizeof(RawShape) == 48, "mxnet::TShape takes 48 bytes");

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

// The functors are empty, so copying and destroying them does nothing.
bool ManageNothing(void* /*target*/, const void* /*source*/, int /*operation*/) {
  return false;
}

// --- Finding the slots ------------------------------------------------------

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
    return "the operator maps of this MXNet have an unexpected memory layout";
  }
  const auto indices = OpIndices(mxnet, reader);
  const auto forward = indices.find("FullyConnected");
  const auto backward = indices.find("_backward_FullyConnected");
  if (forward == indices.end() || backward == indices.end() ||
      IsRegistered(*is_backward, forward->second) ||
      !IsRegistered(*is_backward, backward->second) ||
      !IsRegistered(*state.shape_functions, forward->second) ||
      IsRegistered(*state.shape_functions, backward->second)) {
    return "the operators of this MXNet have an unexpected memory layout";
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

// Looks up the slots in the libmxnet.so at `path`, once. Returns null, or why
// MXNet cannot be taught.
TOFU_EXPORT const char* TofuTeachOpen(const char* path) {
  static std::string problem;
  if (GetState().is_open) return nullptr;
  problem = Open(path);
  return problem.empty() ? nullptr : problem.c_str();
}

// The i-th backward operator that reads the state its forward operator left in
// the same executor, or null after the last.
TOFU_EXPORT const char* TofuTeachStatefulOp(int i) {
  const auto& stateful = GetState().stateful;
  return i < static_cast<int>(stateful.size()) ? stateful[i].name.c_str() : nullptr;
}

// The i-th backward operator, any of which may be taught, or null after the last.
TOFU_EXPORT const char* TofuTeachBackwardOp(int i) {
  const auto& backward = GetState().backward_ops;
  return i < static_cast<int>(backward.size()) ? backward[i].name.c_str() : nullptr;
}

// Adds a node. `num_dims` has one entry per output, `dims` the dimensions of all
// outputs in a row.
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

// Fills the empty slots. Returns their number, 0 if TofuTeachOpen has not
// succeeded. The caller holds a lock until TofuTeachEnd.
TOFU_EXPORT int TofuTeachBegin() {
  State& state = GetState();
  if (!state.is_open || !state.filled.empty()) return 0;
  Fill(state.shape_functions, reinterpret_cast<Invoker>(InferTaughtShape));
  Fill(state.dtype_functions, reinterpret_cast<Invoker>(InferTaughtDtype));
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
