#include "multifetch_ops.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
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
#include "kernels/multifetch.h"
#include "multifetch_gpu.h"

namespace tofu {
namespace {

// Called before each fetch by tests that vary the order of events.
using Observer = void (*)();
std::atomic<Observer> g_observer{nullptr};

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

// The regions that one fetch assembles, ready to run.
struct Prepared {
  explicit Prepared(FetchBundle given) : bundle(std::move(given)) {
    for (const MultiFetchSpec& spec : bundle) {
      fetches.emplace_back(spec);
      texts.push_back(WriteSpec(spec));
    }
  }

  FetchBundle bundle;
  std::vector<MultiFetch> fetches;
  std::vector<std::string> texts;  // of the specifications
};

const Prepared& Prepare(const std::string& spec) {
  static auto* const known = new MadeOnce<Prepared>;
  return known->Get(spec, [&] { return Prepared(ReadBundle(spec)); });
}

const FetchBundle& BundleOf(const OpAttrs& attrs) {
  return Prepare(attrs.Get(kSpecAttr)).bundle;
}

void Fetch() {}

void ParseFetch(const OpAttrs& attrs, int* num_inputs, int* num_outputs) {
  const FetchBundle& bundle = BundleOf(attrs);
  *num_inputs = NumInputs(bundle);
  *num_outputs = static_cast<int>(bundle.size());
}

// An owner may hand out a tile as a vector (passes/partition/plain_tiles.h), so inputs
// keep their shapes.
void InferFetchShapes(const OpAttrs& attrs, OpShapes* shapes) {
  shapes->outputs.clear();
  for (const MultiFetchSpec& spec : BundleOf(attrs)) {
    shapes->outputs.push_back(spec.shape);
  }
}

void InferFetchDtypes(const OpAttrs& attrs, int* inputs, int /*num_inputs*/,
                      int* outputs) {
  for (const MultiFetchSpec& spec : BundleOf(attrs)) {
    inputs = std::fill_n(inputs, spec.sources.size(), spec.dtype);
    *outputs++ = spec.dtype;
  }
}

void ComputeFetch(const OpAttrs& attrs, const OpArrays& arrays) {
  const Observer observer = g_observer.load(std::memory_order_relaxed);
  if (observer != nullptr) observer();
  const Prepared& prepared = Prepare(attrs.Get(kSpecAttr));
  if (arrays.on_gpu) return FetchOnGpu(prepared.texts, prepared.bundle, arrays);
  void* const* tiles = arrays.inputs;
  for (size_t region = 0; region < prepared.fetches.size(); ++region) {
    prepared.fetches[region].Run(tiles, arrays.outputs[region]);
    tiles += prepared.bundle[region].sources.size();
  }
}

constexpr TofuOp kOps[] = {
    {kMultiFetchOp, Fetch, ParseFetch, InferFetchShapes, InferFetchDtypes, ComputeFetch},
};
constexpr int kNumOps = sizeof(kOps) / sizeof(kOps[0]);

}  // namespace

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

// For tests: `observer` is called before every fetch, on the thread that runs it. Null:
// none.
extern "C" __attribute__((visibility("default"))) void TofuObserveFetches(
    void (*observer)()) {
  tofu::g_observer.store(observer);
}

// Runs one specification on the CPU without MXNet, for measurements and
// tests. Returns null, or what is wrong with the specification.
extern "C" __attribute__((visibility("default"))) const char* TofuRunMultiFetch(
    const char* spec, const void* const* sources, void* region) {
  thread_local std::string problem;
  try {
    tofu::Prepare(spec).fetches.at(0).Run(sources, region);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}
