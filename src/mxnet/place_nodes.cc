// Binds graphs whose fetches read other workers' arrays themselves.
//
// MXNet puts a copy on every edge between two contexts: its executor calls NNVM's pass
// PlaceDevice, which gives each node the device of its context group and adds the copies.
// Tofu's operators need none. They read memory of any device, and the engine orders them
// by the arrays that they name, wherever those are. A graph in which nothing else reads
// another worker's arrays can therefore do without the pass: here each node just gets its
// device, and the graph stays as it is.
//
// This file replaces the pass's function in a registry of libmxnet.so, and reads graphs
// in memory whose layout is not part of a public ABI. The guards:
//   1. only MXNet 1.9.1, and everything is read through a pipe before it is trusted;
//   2. the function that is replaced is registered as "PlaceDevice";
//   3. a graph is placed here only between TofuPlaceBegin and TofuPlaceEnd, on the thread
//      that called them; all others reach MXNet's own function;
//   4. every node of the graph must have a name for which a device was given, and a
//      variable the device that MXNet found for it.
// If a guard fails, MXNet's own function runs, and TofuPlaceEnd says so.
// tofu.mx.extension adds a fifth: it runs a fetch over two contexts.

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <unordered_map>
#include <vector>

#include "op_maps.h"
#include "safe_reader.h"

#define TOFU_EXPORT __attribute__((visibility("default")))

namespace {

using tofu::Invoker;
using tofu::Manager;
using tofu::RawVector;
using tofu::SafeReader;

// nnvm::PassFunctionReg, up to its function. Strings of the old ABI are pointers.
struct RawPass {
  const char* name;
  const char* description;
  RawVector<char> arguments;
  void* functor[2];
  Manager manager;
  Invoker invoker;
};
static_assert(offsetof(RawPass, functor) == 40, "a pass's function lies at byte 40");

// nnvm::Node: attributes first, of which the operator and the name.
struct RawNode {
  const void* op;
  const char* name;
};

// nnvm::IndexedGraph::Node
struct RawIndexedNode {
  const RawNode* source;
  const void* others[6];
};
static_assert(sizeof(RawIndexedNode) == 56, "an indexed node takes 56 bytes");

// nnvm::IndexedGraph, which begins with its nodes.
struct RawIndexedGraph {
  RawVector<RawIndexedNode> nodes;
};

// Graph is not trivially copyable, so values of it are passed as pointers.
using Pass = void* (*)(void* result, const void* functor, void* graph);

struct Library {
  const RawIndexedGraph* (*indexed)(const void* graph) = nullptr;
  RawVector<int>* (*devices)(const void* graph, const std::string& name) = nullptr;
  void (*move)(void* to, void* from) = nullptr;
  Pass mxnets = nullptr;
};

Library library;

constexpr const char* kRegistry = "_ZN4dmlc8RegistryIN4nnvm15PassFunctionRegEE3GetEv";
constexpr const char* kIndexed = "_ZNK4nnvm5Graph13indexed_graphEv";
constexpr const char* kDevices = "_ZNK4nnvm5Graph7GetAttrISt6vectorIiSaIiEEEERKT_RKSs";
constexpr const char* kMove = "_ZN4nnvm5GraphC1EOS0_";
constexpr const char* kPassName = "PlaceDevice";
constexpr size_t kMaxPasses = 1 << 10;

// The devices for the graph that this thread binds.
struct Placement {
  std::unordered_map<std::string, int> devices;  // by the node's name
  int placed = 0;
};

thread_local Placement* current = nullptr;

// Gives every node its device. Returns false, and changes nothing, if a guard fails.
bool Assign(const void* graph, const Placement& placement) {
  const RawVector<RawIndexedNode>& nodes = library.indexed(graph)->nodes;
  RawVector<int>* devices = library.devices(graph, "device");
  const auto size = static_cast<size_t>(nodes.end - nodes.begin);
  if (static_cast<size_t>(devices->end - devices->begin) != size) return false;
  std::vector<int> numbers(size);
  for (size_t i = 0; i < size; ++i) {
    const auto known = placement.devices.find(nodes.begin[i].source->name);
    if (known == placement.devices.end()) return false;
    numbers[i] = known->second;
    if (devices->begin[i] != -1 && devices->begin[i] != numbers[i]) return false;
  }
  for (size_t i = 0; i < size; ++i) devices->begin[i] = numbers[i];
  return true;
}

// Assign, which also returns false if the graph has no attribute "device", for which
// MXNet throws.
bool Assigned(const void* graph, const Placement& placement) {
  try {
    return Assign(graph, placement);
  } catch (const std::exception&) {
    return false;
  }
}

void* Place(void* result, const void* functor, void* graph) {
  if (current == nullptr || !Assigned(graph, *current)) {
    return library.mxnets(result, functor, graph);
  }
  ++current->placed;
  library.move(result, graph);
  return result;
}

const Pass kPlace = Place;

RawPass* FindPass(void* handle, const SafeReader& reader) {
  auto* const registry = reinterpret_cast<const void* (*)()>(dlsym(handle, kRegistry));
  RawVector<RawPass*> passes;
  if (registry == nullptr || !reader.Read(registry(), &passes, sizeof(passes))) {
    return nullptr;
  }
  const auto size = static_cast<size_t>(passes.end - passes.begin);
  std::vector<RawPass*> all(size <= kMaxPasses ? size : 0);
  if (!reader.Read(static_cast<const void*>(passes.begin), static_cast<void*>(all.data()),
                   all.size() * sizeof(RawPass*))) {
    return nullptr;
  }
  for (RawPass* pass : all) {
    RawPass copy;
    if (!reader.Read(pass, &copy, sizeof(copy))) return nullptr;
    if (!reader.TextIs(copy.name, kPassName)) continue;
    return copy.manager == nullptr || copy.invoker == nullptr ? nullptr : pass;
  }
  return nullptr;
}

template <typename F>
bool Load(void* handle, const char* symbol, F* function) {
  *function = reinterpret_cast<F>(dlsym(handle, symbol));
  return *function != nullptr;
}

std::string Open(const char* path) {
  tofu::Mxnet mxnet;
  std::string problem = tofu::FindMxnet(path, &mxnet);
  if (!problem.empty()) return problem;
  void* handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  Library loaded;
  if (!Load(handle, kIndexed, &loaded.indexed) ||
      !Load(handle, kDevices, &loaded.devices) || !Load(handle, kMove, &loaded.move)) {
    return std::string(path) + " does not export the functions of graphs";
  }
  RawPass* const pass = FindPass(handle, SafeReader());
  if (pass == nullptr) return "MXNet's passes have an unexpected memory layout";
  const auto ours = reinterpret_cast<Invoker>(kPlace);
  loaded.mxnets =
      pass->invoker == ours ? library.mxnets : reinterpret_cast<Pass>(pass->invoker);
  library = loaded;
  pass->invoker = ours;
  return "";
}

}  // namespace

extern "C" {

// Replaces the pass in the libmxnet.so at `path`. Returns null, or what is wrong.
TOFU_EXPORT const char* TofuPlaceOpen(const char* path) {
  static std::string problem;
  problem = Open(path);
  return problem.empty() ? nullptr : problem.c_str();
}

// Graphs that this thread binds from now on have these nodes, on these devices: numbers
// in the order in which MXNet counts the contexts of a bind.
TOFU_EXPORT void TofuPlaceBegin(const char* const* names, const int* devices,
                                size_t size) {
  delete current;
  current = new Placement;
  current->devices.reserve(size);
  for (size_t i = 0; i < size; ++i) current->devices.emplace(names[i], devices[i]);
}

// Ends this. Returns how many graphs were placed without copies.
TOFU_EXPORT int TofuPlaceEnd() {
  const int placed = current == nullptr ? 0 : current->placed;
  delete current;
  current = nullptr;
  return placed;
}

}  // extern "C"
