// Operators' attributes inside libmxnet.so: MXNet 1.9.1 keeps them in maps from an
// operator's index to a function, whose memory layout is not part of a public ABI.
//
// GCC 4.8 built that library, so its std::string and std::function differ from ours:
// files that include this one are compiled with the old string ABI and handle
// everything else as plain words.
//
// Errors:     functions return what differs from what they expect.
// Position:   under teach_shapes.cc and free_operators.cc.
// Not handled: other versions; FindMxnet rejects them.
#ifndef TOFU_MXNET_OP_MAPS_H_
#define TOFU_MXNET_OP_MAPS_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "safe_reader.h"

namespace tofu {

// std::vector<T>
template <typename T>
struct RawVector {
  T* begin;
  T* end;
  T* end_of_storage;
};

// std::function of GCC 4.8: by-value arguments reach the invoker by value.
// An invoker's arguments and result depend on the attribute.
using Manager = bool (*)(void* target, const void* source, int operation);
using Invoker = void (*)();

// One element of OpMap<std::function<...>>: a function and its priority level,
// 0 if nothing is registered.
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

// Functions that libmxnet.so exports.
struct Mxnet {
  int (*get_version)(int*) = nullptr;
  int (*list_op_names)(uint32_t*, const char***) = nullptr;
  int (*get_op)(const char*, void**) = nullptr;
  const void* (*get_attr_map)(const std::string&) = nullptr;
};

// Looks the functions up in the loaded library at `path`. Returns an empty text if they
// are there and the version is right, else what is wrong.
std::string FindMxnet(const char* path, Mxnet* mxnet);

// Every operator's index, read from its memory. Empty if the layout differs: a name is
// not where it should be, or two operators share an index.
std::unordered_map<std::string, uint32_t> OpIndices(const Mxnet& mxnet,
                                                    const SafeReader& reader);

// The holder of the map of an operator attribute, or null if the memory does not look
// like one.
template <typename T>
RawAny* FindHolder(const Mxnet& mxnet, const SafeReader& reader, const char* name) {
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
  return static_cast<RawAny*>(const_cast<void*>(any_map));
}

// The map, or null.
template <typename T>
RawOpMap<T>* FindOpMap(const Mxnet& mxnet, const SafeReader& reader, const char* name) {
  const RawAny* holder = FindHolder<T>(mxnet, reader, name);
  return holder == nullptr ? nullptr : static_cast<RawOpMap<T>*>(holder->content);
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

// Sets a flag of operator number `index`, or clears it. MXNet's threads read the map
// meanwhile. So if the map is too short, a single write of a pointer replaces it with a
// longer copy, and the old map stays for its current readers.
void SetFlag(RawAny* holder, uint32_t index, bool is_set);

}  // namespace tofu

#endif  // TOFU_MXNET_OP_MAPS_H_
