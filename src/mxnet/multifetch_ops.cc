#include "multifetch_ops.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/fetch_bundle.h"
#include "kernels/multifetch.h"
#include "multifetch_gpu.h"

namespace tofu {
namespace {

constexpr int kInt64 = 6;  // the type of handles, acknowledgements and tokens
constexpr char kSpecAttr[] = "spec";
constexpr char kHandlesAttr[] = "handles";
constexpr char kNumArgsAttr[] = "num_args";
constexpr char kNumTilesAttr[] = "num_tiles";

// Called before each step of a fetch by tests that vary the order of events.
enum class Step { kPublish, kFetch, kRetire };
using Observer = void (*)(int step);
std::atomic<Observer> g_observer{nullptr};

void Observe(Step step) {
  const Observer observer = g_observer.load(std::memory_order_relaxed);
  if (observer != nullptr) observer(static_cast<int>(step));
}

// What one fetch assembles, ready to run.
struct Prepared {
  explicit Prepared(FetchBundle given) : bundle(std::move(given)) {
    for (const MultiFetchSpec& spec : bundle.specs) {
      fetches.emplace_back(spec);
      texts.push_back(WriteSpec(spec));
    }
  }

  FetchBundle bundle;
  std::vector<MultiFetch> fetches;
  std::vector<std::string> texts;  // of the specifications
};

// Equal texts are parsed once per process.
const Prepared& Prepare(const char* spec, const char* handles) {
  static auto* const known =
      new std::unordered_map<std::string, std::unique_ptr<Prepared>>;
  static auto* const mutex = new std::shared_mutex;
  std::string key = spec;
  if (handles != nullptr) (key += '\n') += handles;
  {
    const std::shared_lock<std::shared_mutex> lock(*mutex);
    const auto found = known->find(key);
    if (found != known->end()) return *found->second;
  }
  auto prepared =
      std::make_unique<Prepared>(ReadBundle(spec, handles == nullptr ? "" : handles));
  const std::unique_lock<std::shared_mutex> lock(*mutex);
  return *known->emplace(key, std::move(prepared)).first->second;
}

const Prepared& Prepare(const OpAttrs& attrs) {
  return Prepare(attrs.Get(kSpecAttr), attrs.Find(kHandlesAttr));
}

int NumTiles(const OpAttrs& attrs) {
  const char* count = attrs.Find(kNumTilesAttr);
  return count == nullptr ? 1 : static_cast<int>(std::strtol(count, nullptr, 10));
}

// --- _tofu_publish -----------------------------------------------------------

void Publish() {}

void ParsePublish(const OpAttrs& attrs, int* num_inputs, int* num_outputs) {
  *num_inputs = NumTiles(attrs);
  *num_outputs = 1;
}

void InferPublishShapes(const OpAttrs& attrs, OpShapes* shapes) {
  shapes->outputs = {{NumTiles(attrs)}};
}

void InferPublishDtypes(const OpAttrs& /*attrs*/, int* /*inputs*/, int /*num_inputs*/,
                        int* outputs) {
  outputs[0] = kInt64;
}

void ComputePublish(const OpAttrs& /*attrs*/, const OpArrays& arrays) {
  Observe(Step::kPublish);
  if (arrays.on_gpu) return PublishOnGpu(arrays);
  auto* const handle = static_cast<char*>(arrays.outputs[0]);
  for (int i = 0; i < arrays.num_inputs; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(arrays.inputs[i]);
    std::memcpy(handle + i * sizeof(int64_t), &address, sizeof(address));
  }
}

// --- _tofu_multifetch --------------------------------------------------------

void Fetch() {}

void ParseFetch(const OpAttrs& attrs, int* num_inputs, int* num_outputs) {
  const FetchBundle& bundle = Prepare(attrs).bundle;
  *num_inputs = bundle.num_inputs();
  *num_outputs = static_cast<int>(bundle.specs.size()) + 1;
}

// The shapes of handles are those of their publications.
void InferFetchShapes(const OpAttrs& attrs, OpShapes* shapes) {
  const FetchBundle& bundle = Prepare(attrs).bundle;
  int input = bundle.num_handles();
  shapes->outputs.clear();
  for (const MultiFetchSpec& spec : bundle.specs) {
    for (size_t i = spec.num_remote; i < spec.sources.size(); ++i) {
      shapes->inputs[input++] = spec.sources[i];
    }
    shapes->outputs.push_back(spec.shape);
  }
  shapes->outputs.push_back({1});
}

void InferFetchDtypes(const OpAttrs& attrs, int* inputs, int /*num_inputs*/,
                      int* outputs) {
  const FetchBundle& bundle = Prepare(attrs).bundle;
  int input = bundle.num_handles();
  std::fill(inputs, inputs + input, kInt64);
  for (const MultiFetchSpec& spec : bundle.specs) {
    for (size_t i = spec.num_remote; i < spec.sources.size(); ++i) {
      inputs[input++] = spec.dtype;
    }
    *outputs++ = spec.dtype;
  }
  *outputs = kInt64;
}

// Where the addresses of remote tiles are, and the local tiles, of every region.
std::vector<std::vector<const void*>> Sources(const FetchBundle& bundle,
                                              const OpArrays& arrays) {
  std::vector<std::vector<const void*>> sources;
  auto remote = bundle.remote.begin();
  int input = bundle.num_handles();
  for (const MultiFetchSpec& spec : bundle.specs) {
    std::vector<const void*>& own = sources.emplace_back();
    own.reserve(spec.sources.size());
    for (int i = 0; i < spec.num_remote; ++i, ++remote) {
      own.push_back(static_cast<const int64_t*>(arrays.inputs[remote->input]) +
                    remote->index);
    }
    while (own.size() < spec.sources.size()) own.push_back(arrays.inputs[input++]);
  }
  return sources;
}

void ComputeFetch(const OpAttrs& attrs, const OpArrays& arrays) {
  Observe(Step::kFetch);
  const Prepared& prepared = Prepare(attrs);
  std::vector<std::vector<const void*>> sources = Sources(prepared.bundle, arrays);
  if (arrays.on_gpu) return FetchOnGpu(prepared.texts, sources, arrays);
  for (size_t region = 0; region < sources.size(); ++region) {
    std::vector<const void*>& own = sources[region];
    for (int i = 0; i < prepared.bundle.specs[region].num_remote; ++i) {
      // The tile's address.
      std::memcpy(static_cast<void*>(&own[i]), own[i], sizeof(own[i]));
    }
    prepared.fetches[region].Run(own.data(), arrays.outputs[region]);
  }
  std::memset(arrays.outputs[sources.size()], 0, sizeof(int64_t));
}

// --- _tofu_retire ------------------------------------------------------------

void Retire() {}

void ParseRetire(const OpAttrs& attrs, int* num_inputs, int* num_outputs) {
  *num_inputs = static_cast<int>(std::strtol(attrs.Get(kNumArgsAttr), nullptr, 10));
  *num_outputs = 1;
}

void InferRetireDtypes(const OpAttrs& attrs, int* inputs, int num_inputs, int* outputs) {
  for (int i = NumTiles(attrs); i < num_inputs; ++i) inputs[i] = kInt64;
  outputs[0] = kInt64;
}

void InferOneElement(const OpAttrs& /*attrs*/, OpShapes* shapes) {
  shapes->outputs = {{1}};
}

// Does nothing: the engine has already waited for all inputs. No one reads the token; on
// a GPU, writing it would be a call of the driver's.
void ComputeRetire(const OpAttrs& /*attrs*/, const OpArrays& arrays) {
  Observe(Step::kRetire);
  if (arrays.on_gpu) return;
  std::memset(arrays.outputs[0], 0, sizeof(int64_t));
}

constexpr TofuOp kOps[] = {
    {"_tofu_publish", Publish, ParsePublish, InferPublishShapes, InferPublishDtypes,
     ComputePublish},
    {kFetchName, Fetch, ParseFetch, InferFetchShapes, InferFetchDtypes, ComputeFetch},
    {kRetireName, Retire, ParseRetire, InferOneElement, InferRetireDtypes, ComputeRetire},
};
constexpr int kNumOps = sizeof(kOps) / sizeof(kOps[0]);

}  // namespace

void RetireUnseen() { Observe(Step::kRetire); }

const char* OpAttrs::Find(const char* key) const {
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(keys[i], key) == 0) return values[i];
  }
  return nullptr;
}

const char* OpAttrs::Get(const char* key) const {
  const char* value = Find(key);
  if (value != nullptr) return value;
  throw std::invalid_argument(std::string("found no attribute ") + key +
                              "; expected the graph that tofu made");
}

const TofuOp* FindOp(int index) { return index < kNumOps ? &kOps[index] : nullptr; }

const TofuOp* FindOp(void (*identity)()) {
  for (const TofuOp& op : kOps) {
    if (op.identity == identity) return &op;
  }
  return nullptr;
}

}  // namespace tofu

// For tests: `observer` is called before every publication (0), fetch (1) and
// retirement (2), on the thread that runs it. Null: none.
extern "C" __attribute__((visibility("default"))) void TofuObserveFetches(
    void (*observer)(int step)) {
  tofu::g_observer.store(observer);
}

// Runs one specification on the CPU without MXNet, for measurements and
// tests. Returns null, or what is wrong with the specification.
extern "C" __attribute__((visibility("default"))) const char* TofuRunMultiFetch(
    const char* spec, const void* const* sources, void* region) {
  thread_local std::string problem;
  try {
    tofu::Prepare(spec, nullptr).fetches.at(0).Run(sources, region);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}
