#include "mxnet/fake/fake_mxnet.h"

#include <cstring>
#include <map>
#include <new>
#include <string>
#include <vector>

// Built with the string ABI of GCC 4, as MXNet's wheels are.
#define FAKE __attribute__((visibility("default")))

namespace {

struct FakeOp {
  std::string name;  // a pointer to its text
  char others[144];
  uint32_t index;
  uint32_t padding;
};
static_assert(sizeof(FakeOp) == 160, "nnvm::Op::index_ lies at byte 152");

struct FakeFlag {
  bool value;
  int32_t level;
};

template <typename T>
struct FakeMap {
  std::string name;
  std::vector<T> slots;
};

// dmlc::any
struct FakeAny {
  const void* type;
  void* content;
};

constexpr int kDefaultLevel = 10;

// Names in the order of their indices.
const char* const kNames[] = {
    "FullyConnected",  // index 0
    "_backward_FullyConnected",
    "_backward_Own",     // has its own functions
    "_backward_Odd",     // with a manager, but at level 0
    "_backward_State",   // reads the state of its forward operator
    "_backward_Far",     // after the end of FInferShape
    "Convolution",       // takes oneDNN's layouts
    "_tofu_multifetch",  // after the end of TIsMKLDNN
};
constexpr int kNumOps = sizeof(kNames) / sizeof(kNames[0]);
constexpr int kNumBackward = 6;  // and as many forward operators
constexpr int kFirstTofu = 7;

// std::vector<T>
template <typename T>
struct Vector {
  T* begin;
  T* end;
  T* end_of_storage;
};

// FResourceRequest of an operator of an extension library: temporary space and a
// generator. The vector is returned in the caller's memory.
Vector<int32_t>* RequestBoth(Vector<int32_t>* result, const void*, const void*) {
  auto* const types = static_cast<int32_t*>(::operator new(2 * sizeof(int32_t)));
  types[0] = 1;
  types[1] = 2;
  *result = {types, types + 2, types + 2};
  return result;
}

// mxnet::Resource
struct FakeResource {
  int32_t type;
  char others[28];
};

std::string* Calls() {
  static auto* const calls = new std::string;
  return calls;
}

// An array, whose chunk begins with the data's address and has its layout at byte 56.
struct FakeArray {
  const char* chunk;
  char others[216];
};

// FComputeEx of such an operator. The resources lie at byte 64 of the context. Records
// each input: its data's address, and whether it names its layout.
void Dispatch(const void*, const void*, const char* context,
              const Vector<FakeArray>* inputs, const void*, const void*) {
  Vector<FakeResource> requested;
  std::memcpy(&requested, context + 64, sizeof(requested));
  for (const FakeResource* r = requested.begin; r != requested.end; ++r) {
    *Calls() += std::to_string(r->type);
  }
  for (size_t i = 0; inputs != nullptr && inputs->begin + i != inputs->end; ++i) {
    size_t data = 0;
    size_t layout = 0;
    std::memcpy(&data, inputs->begin[i].chunk, sizeof(data));
    std::memcpy(&layout, inputs->begin[i].chunk + 56, sizeof(layout));
    *Calls() += " " + std::to_string(data) + (layout == 0 ? "" : "!");
  }
  *Calls() += '\n';
}

FakeSlot SlotOfFunction(void* manager, void (*invoker)()) {
  return {{}, manager, reinterpret_cast<void*>(invoker), 10};
}

struct World {
  World() {
    for (int i = 0; i < kNumOps; ++i) {
      ops.push_back({kNames[i], {}, static_cast<uint32_t>(i), 0});
    }
    shapes = {"FInferShape", std::vector<FakeSlot>(kNumBackward - 1)};
    dtypes = {"FInferType", std::vector<FakeSlot>(kNumBackward)};
    is_backward = {"TIsBackward", std::vector<FakeFlag>(kNumBackward)};
    is_stateful = {"TIsLayerOpBackward", std::vector<FakeFlag>(kNumBackward)};
    is_mkldnn = {"TIsMKLDNN", std::vector<FakeFlag>(kFirstTofu)};
    is_mkldnn.slots[kFirstTofu - 1] = {true, kDefaultLevel};
    requests = {"FResourceRequest", std::vector<FakeSlot>(kNumOps)};
    cpu = {"FComputeEx<cpu>", std::vector<FakeSlot>(kNumOps)};
    gpu = {"FComputeEx<gpu>", std::vector<FakeSlot>(kNumOps)};
    for (int i = kFirstTofu - 1; i < kNumOps; ++i) {
      requests.slots[i] = SlotOfFunction(&ops, reinterpret_cast<void (*)()>(RequestBoth));
      cpu.slots[i] = SlotOfFunction(&ops, reinterpret_cast<void (*)()>(Dispatch));
      gpu.slots[i] = cpu.slots[i];
    }
    for (FakeMap<FakeSlot>* map : {&shapes, &dtypes}) {
      for (int own : {0, 2}) {
        map->slots[own] = {{}, &ops, &shapes, kDefaultLevel};
      }
      map->slots[3].manager = &ops;
    }
    for (int i = 1; i < kNumBackward; ++i) is_backward.slots[i] = {true, kDefaultLevel};
    is_stateful.slots[4] = {true, kDefaultLevel};
    maps = {{"FInferShape", {nullptr, &shapes}},
            {"FInferType", {nullptr, &dtypes}},
            {"TIsBackward", {nullptr, &is_backward}},
            {"TIsLayerOpBackward", {nullptr, &is_stateful}},
            {"TIsMKLDNN", {nullptr, &is_mkldnn}},
            {"FResourceRequest", {nullptr, &requests}},
            {"FComputeEx<cpu>", {nullptr, &cpu}},
            {"FComputeEx<gpu>", {nullptr, &gpu}}};
    for (const FakeOp& op : ops) listed.push_back(op.name.c_str());
    listed.push_back("FC");  // another name of the first
  }

  FakeOp* Find(const char* name) {
    if (std::strcmp(name, "FC") == 0) return &ops[0];
    for (FakeOp& op : ops) {
      if (op.name == name) return &op;
    }
    return nullptr;
  }

  int version = 10901;
  std::vector<FakeOp> ops;
  FakeMap<FakeSlot> shapes;
  FakeMap<FakeSlot> dtypes;
  FakeMap<FakeFlag> is_backward;
  FakeMap<FakeFlag> is_stateful;
  FakeMap<FakeFlag> is_mkldnn;
  FakeMap<FakeSlot> requests;
  FakeMap<FakeSlot> cpu;
  FakeMap<FakeSlot> gpu;
  std::map<std::string, FakeAny> maps;
  std::vector<const char*> listed;
};

World& GetWorld() {
  static auto* const world = new World;
  return *world;
}

}  // namespace

namespace nnvm {

class Op {
 public:
  FAKE static const void* GetAttrMap(const std::string& name);
};

const void* Op::GetAttrMap(const std::string& name) {
  const auto& maps = GetWorld().maps;
  const auto found = maps.find(name);
  return found == maps.end() ? nullptr : &found->second;
}

}  // namespace nnvm

extern "C" {

FAKE const char* FakeMxnetPath() { return "libtofu_fake_mxnet.so"; }

FAKE int MXGetVersion(int* version) {
  *version = GetWorld().version;
  return 0;
}

FAKE int MXListAllOpNames(uint32_t* count, const char*** names) {
  *count = static_cast<uint32_t>(GetWorld().listed.size());
  *names = GetWorld().listed.data();
  return 0;
}

FAKE int NNGetOpHandle(const char* name, void** op) {
  *op = GetWorld().Find(name);
  return *op == nullptr ? -1 : 0;
}

FAKE FakeSlot* FakeSlotOf(const char* map, const char* op) {
  World& world = GetWorld();
  auto& slots = static_cast<FakeMap<FakeSlot>*>(world.maps.at(map).content)->slots;
  const auto index = static_cast<size_t>(world.Find(op) - world.ops.data());
  return index < slots.size() ? &slots[index] : nullptr;
}

FAKE bool FakeFlagOf(const char* op) {
  World& world = GetWorld();
  const auto& flags =
      static_cast<FakeMap<FakeFlag>*>(world.maps.at("TIsMKLDNN").content)->slots;
  const uint32_t index = world.Find(op)->index;
  return index < flags.size() && flags[index].level > 0 && flags[index].value;
}

FAKE const char* FakeCalls() { return Calls()->c_str(); }
FAKE void FakeForgetCalls() { Calls()->clear(); }

FAKE void FakeSetVersion(int version) { GetWorld().version = version; }

FAKE void FakeShareIndex(bool is_shared) { GetWorld().ops[2].index = is_shared ? 1 : 2; }

}  // extern "C"
