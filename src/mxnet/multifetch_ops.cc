#include "multifetch_ops.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
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

#include "fetch/fetch_bundle.h"
#include "fetch/node_names.h"
#include "kernels/handle.h"
#include "kernels/multifetch.h"
#include "multifetch_gpu.h"

namespace tofu {
namespace {

// The worker of a node, as "worker2".
constexpr char kContextAttr[] = "__ctx_group__";
constexpr char kWorkerText[] = "worker";

// Called before each step of a fetch by tests that vary the order of events.
enum class Step { kPublish, kFetch, kRetire };
using Observer = void (*)(int step);
std::atomic<Observer> g_observer{nullptr};

void Observe(Step step) {
  const Observer observer = g_observer.load(std::memory_order_relaxed);
  if (observer != nullptr) observer(static_cast<int>(step));
}

// Objects parsed from a text, once per process.
template <typename Made>
class MadeOnce {
 public:
  template <typename Make>
  const Made& Get(const std::string& text, const Make& make) {
    {
      const std::shared_lock<std::shared_mutex> lock(mutex_);
      const auto found = known_.find(text);
      if (found != known_.end()) return *found->second;
    }
    auto made = std::make_unique<Made>(make());
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    return *known_.emplace(text, std::move(made)).first->second;
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Made>> known_;
};

// The regions of a specification, ready to run.
struct Regions {
  explicit Regions(const std::vector<MultiFetchSpec>& specs) {
    for (const MultiFetchSpec& spec : specs) {
      fetches.emplace_back(spec);
      texts.push_back(WriteSpec(spec));
    }
  }

  std::vector<MultiFetch> fetches;
  std::vector<std::string> texts;  // of the specifications
};

// Regions that one fetch assembles, and their sources. Many fetches differ only in the
// owners.
struct Prepared {
  FetchBundle bundle;
  const Regions& regions;
};

const Prepared& Prepare(const std::string& spec, const std::string& handles) {
  static auto* const known = new MadeOnce<Prepared>;
  static auto* const known_regions = new MadeOnce<Regions>;
  return known->Get(spec + '\n' + handles, [&] {
    FetchBundle bundle = ReadBundle(spec, handles);
    const Regions& regions =
        known_regions->Get(spec, [&] { return Regions(bundle.specs); });
    return Prepared{std::move(bundle), regions};
  });
}

const Prepared& Prepare(const OpAttrs& attrs) {
  const char* const handles = attrs.Find(kHandlesAttr);
  return Prepare(attrs.Get(kSpecAttr), handles == nullptr ? "" : handles);
}

int NumTiles(const OpAttrs& attrs) {
  const char* count = attrs.Find(kNumTilesAttr);
  return count == nullptr ? 1 : static_cast<int>(std::strtol(count, nullptr, 10));
}

// The worker that runs a node; without a context group 0.
int WorkerOf(const OpAttrs& attrs) {
  const char* const group = attrs.Find(kContextAttr);
  const size_t begin = sizeof(kWorkerText) - 1;
  if (group == nullptr || std::strncmp(group, kWorkerText, begin) != 0) return 0;
  return static_cast<int>(std::strtol(group + begin, nullptr, 10));
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
  outputs[0] = kHandleDtype;
}

void ComputePublish(const OpAttrs& attrs, const OpArrays& arrays) {
  Observe(Step::kPublish);
  const int owner = WorkerOf(attrs);
  if (arrays.on_gpu) return PublishOnGpu(owner, arrays);
  auto* const handles = static_cast<char*>(arrays.outputs[0]);
  for (int i = 0; i < arrays.num_inputs; ++i) {
    const uint64_t handle = SealHandle(arrays.inputs[i], owner);
    std::memcpy(handles + i * sizeof(handle), &handle, sizeof(handle));
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
  std::fill(inputs, inputs + input, kHandleDtype);
  for (const MultiFetchSpec& spec : bundle.specs) {
    for (size_t i = spec.num_remote; i < spec.sources.size(); ++i) {
      inputs[input++] = spec.dtype;
    }
    *outputs++ = spec.dtype;
  }
  *outputs = kHandleDtype;
}

std::vector<RegionSources> Sources(const FetchBundle& bundle, const OpArrays& arrays) {
  std::vector<RegionSources> sources;
  auto remote = bundle.remote.begin();
  int input = bundle.num_handles();
  for (const MultiFetchSpec& spec : bundle.specs) {
    RegionSources& own = sources.emplace_back();
    own.arrays.reserve(spec.sources.size());
    for (int i = 0; i < spec.num_remote; ++i, ++remote) {
      own.arrays.push_back(static_cast<const int64_t*>(arrays.inputs[remote->input]) +
                           remote->index);
      own.owners.push_back(remote->owner);
    }
    while (own.arrays.size() < spec.sources.size()) {
      own.arrays.push_back(arrays.inputs[input++]);
    }
  }
  return sources;
}

bool HasElements(const Extents& shape) {
  return std::find(shape.begin(), shape.end(), 0) == shape.end();
}

// Puts the address of every remote tile in the place of where its handle is.
void OpenHandles(const OpAttrs& attrs, const MultiFetchSpec& spec, RegionSources* own) {
  for (int i = 0; i < spec.num_remote; ++i) {
    uint64_t handle = 0;
    std::memcpy(&handle, own->arrays[i], sizeof(handle));
    own->arrays[i] = OpenHandle(handle, own->owners[i]);
    // A tile without elements may have no memory.
    if (own->arrays[i] == nullptr && HasElements(spec.sources[i])) {
      throw HandleError(RefusalText(ReaderText(attrs), handle, own->owners[i]));
    }
  }
}

void ComputeFetch(const OpAttrs& attrs, const OpArrays& arrays) {
  Observe(Step::kFetch);
  const Prepared& prepared = Prepare(attrs);
  std::vector<RegionSources> sources = Sources(prepared.bundle, arrays);
  if (arrays.on_gpu) return FetchOnGpu(attrs, prepared.regions.texts, sources, arrays);
  for (size_t region = 0; region < sources.size(); ++region) {
    OpenHandles(attrs, prepared.bundle.specs[region], &sources[region]);
    prepared.regions.fetches[region].Run(sources[region].arrays.data(),
                                         arrays.outputs[region]);
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
  for (int i = NumTiles(attrs); i < num_inputs; ++i) inputs[i] = kHandleDtype;
  outputs[0] = kHandleDtype;
}

void InferOneElement(const OpAttrs& /*attrs*/, OpShapes* shapes) {
  shapes->outputs = {{1}};
}

// Does nothing: the engine has already waited for all inputs. No one reads the token: on
// a GPU, writing it would be a call of the driver's, and a fault thrown here would not
// reach the script when it reads an output.
void ComputeRetire(const OpAttrs& /*attrs*/, const OpArrays& arrays) {
  Observe(Step::kRetire);
  if (arrays.on_gpu) return;
  std::memset(arrays.outputs[0], 0, sizeof(int64_t));
}

constexpr TofuOp kOps[] = {
    {kPublishOp, Publish, ParsePublish, InferPublishShapes, InferPublishDtypes,
     ComputePublish},
    {kMultiFetchOp, Fetch, ParseFetch, InferFetchShapes, InferFetchDtypes, ComputeFetch},
    {kRetireOp, Retire, ParseRetire, InferOneElement, InferRetireDtypes, ComputeRetire},
};
constexpr int kNumOps = sizeof(kOps) / sizeof(kOps[0]);

}  // namespace

void RetireUnseen() { Observe(Step::kRetire); }

std::string ReaderText(const OpAttrs& attrs) {
  const char* const label = attrs.Find(kLabelAttr);
  return std::string("MultiFetch ") + (label == nullptr ? "" : label) +
         (label == nullptr ? "" : " ") + "on worker " + std::to_string(WorkerOf(attrs));
}

std::string RefusalText(const std::string& reader, uint64_t handle, int owner) {
  return reader + ": found " + DescribeHandle(handle) +
         ", expected an address that worker " + std::to_string(owner) +
         " published; the copy of a handle between these two "
         "workers failed, use TOFU_FETCH=plain";
}

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
    tofu::Prepare(spec, "").regions.fetches.at(0).Run(sources, region);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}
