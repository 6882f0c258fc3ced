#include "op_maps.h"

#include <dlfcn.h>

namespace tofu {
namespace {

constexpr int kMxnetVersion = 10901;

template <typename F>
bool Load(void* library, const char* symbol, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, symbol));
  return *function != nullptr;
}

// RawOpMap<Flag> with a vector that MXNet's code may lengthen or destroy.
struct FlagMap {
  std::string name;
  std::vector<Flag> slots;
};
static_assert(sizeof(FlagMap) == sizeof(RawOpMap<Flag>), "built with the old string ABI");

}  // namespace

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
    return "found MXNet version " + std::to_string(version) + ", expected " +
           std::to_string(kMxnetVersion) + " (1.9.1)";
  }
  return "";
}

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
  // Every operator is listed under its own name and maybe under others.
  if (indices.size() != ops.size()) return {};
  return indices;
}

void SetFlag(RawAny* holder, uint32_t index, bool is_set) {
  const auto* map = static_cast<const RawOpMap<Flag>*>(holder->content);
  if (SlotOf(*map, index) == nullptr) {
    if (!is_set) return;
    auto* longer = new FlagMap{map->name, {map->slots.begin, map->slots.end}};
    longer->slots.resize(index + 1);
    __atomic_store_n(&holder->content, static_cast<void*>(longer), __ATOMIC_RELEASE);
    map = static_cast<const RawOpMap<Flag>*>(holder->content);
  }
  map->slots.begin[index] = {is_set, is_set ? 1 : 0};
}

}  // namespace tofu
