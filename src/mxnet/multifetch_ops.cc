#include "multifetch_ops.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "kernels/multifetch.h"
#include "multifetch_gpu.h"

namespace tofu {
namespace {

constexpr int kInt64 = 6;  // the type of handles, acknowledgements and tokens
constexpr char kSpecAttr[] = "spec";
constexpr char kNumArgsAttr[] = "num_args";

// Called before each step of a fetch by tests that vary the order of events.
enum class Step { kPublish, kFetch, kRetire };
using Observer = void (*)(int step);
std::atomic<Observer> g_observer{nullptr};

void Observe(Step step) {
  const Observer observer = g_observer.load(std::memory_order_relaxed);
  if (observer != nullptr) observer(static_cast<int>(step));
}

// A specification, parsed; equal texts are parsed once per process.
const MultiFetch& Prepared(const char* spec) {
  static auto* const fetches =
      new std::unordered_map<std::string, std::unique_ptr<MultiFetch>>;
  static auto* const mutex = new std::shared_mutex;
  const std::string key = spec;
  {
    const std::shared_lock<std::shared_mutex> lock(*mutex);
    const auto found = fetches->find(key);
    if (found != fetches->end()) return *found->second;
  }
  auto fetch = std::make_unique<MultiFetch>(ReadSpec(key));
  const std::unique_lock<std::shared_mutex> lock(*mutex);
  return *fetches->emplace(key, std::move(fetch)).first->second;
}

// --- _tofu_publish -----------------------------------------------------------

void Publish() {}

void ParsePublish(const OpAttrs& /*attrs*/, int* num_inputs, int* num_outputs) {
  *num_inputs = 1;
  *num_outputs = 1;
}

void InferOneElement(const OpAttrs& /*attrs*/, OpShapes* shapes) {
  shapes->outputs = {{1}};
}

void InferPublishDtypes(const OpAttrs& /*attrs*/, int* /*inputs*/, int /*num_inputs*/,
                        int* outputs) {
  outputs[0] = kInt64;
}

void ComputePublish(const OpAttrs& /*attrs*/, const OpArrays& arrays) {
  Observe(Step::kPublish);
  if (arrays.on_gpu) return PublishOnGpu(arrays);
  const auto address = reinterpret_cast<uintptr_t>(arrays.inputs[0]);
  std::memcpy(arrays.outputs[0], &address, sizeof(address));
}

// --- _tofu_multifetch --------------------------------------------------------

void Fetch() {}

void ParseFetch(const OpAttrs& attrs, int* num_inputs, int* num_outputs) {
  *num_inputs = static_cast<int>(Prepared(attrs.Get(kSpecAttr)).spec().sources.size());
  *num_outputs = 2;
}

void InferFetchShapes(const OpAttrs& attrs, OpShapes* shapes) {
  const MultiFetchSpec& spec = Prepared(attrs.Get(kSpecAttr)).spec();
  for (size_t i = 0; i < shapes->inputs.size(); ++i) {
    const bool is_remote = static_cast<int>(i) < spec.num_remote;
    shapes->inputs[i] = is_remote ? Extents{1} : spec.sources[i];
  }
  shapes->outputs = {spec.shape, {1}};
}

void InferFetchDtypes(const OpAttrs& attrs, int* inputs, int num_inputs, int* outputs) {
  const MultiFetchSpec& spec = Prepared(attrs.Get(kSpecAttr)).spec();
  for (int i = 0; i < num_inputs; ++i) {
    inputs[i] = i < spec.num_remote ? kInt64 : spec.dtype;
  }
  outputs[0] = spec.dtype;
  outputs[1] = kInt64;
}

void ComputeFetch(const OpAttrs& attrs, const OpArrays& arrays) {
  Observe(Step::kFetch);
  if (arrays.on_gpu) return FetchOnGpu(attrs.Get(kSpecAttr), arrays);
  const MultiFetch& fetch = Prepared(attrs.Get(kSpecAttr));
  std::vector<const void*> sources(arrays.inputs, arrays.inputs + arrays.num_inputs);
  for (int i = 0; i < fetch.spec().num_remote; ++i) {
    // The tile's address.
    std::memcpy(static_cast<void*>(&sources[i]), arrays.inputs[i], sizeof(sources[i]));
  }
  fetch.Run(sources.data(), arrays.outputs[0]);
  std::memset(arrays.outputs[1], 0, sizeof(int64_t));
}

// --- _tofu_retire ------------------------------------------------------------

void Retire() {}

void ParseRetire(const OpAttrs& attrs, int* num_inputs, int* num_outputs) {
  *num_inputs = static_cast<int>(std::strtol(attrs.Get(kNumArgsAttr), nullptr, 10));
  *num_outputs = 1;
}

void InferRetireDtypes(const OpAttrs& /*attrs*/, int* inputs, int num_inputs,
                       int* outputs) {
  for (int i = 1; i < num_inputs; ++i) inputs[i] = kInt64;
  outputs[0] = kInt64;
}

// Does nothing: the engine has already waited for all inputs.
void ComputeRetire(const OpAttrs& /*attrs*/, const OpArrays& arrays) {
  Observe(Step::kRetire);
  if (arrays.on_gpu) return RetireOnGpu(arrays);
  std::memset(arrays.outputs[0], 0, sizeof(int64_t));
}

constexpr TofuOp kOps[] = {
    {"_tofu_publish", Publish, ParsePublish, InferOneElement, InferPublishDtypes,
     ComputePublish},
    {"_tofu_multifetch", Fetch, ParseFetch, InferFetchShapes, InferFetchDtypes,
     ComputeFetch},
    {kRetireName, Retire, ParseRetire, InferOneElement, InferRetireDtypes, ComputeRetire},
};
constexpr int kNumOps = sizeof(kOps) / sizeof(kOps[0]);

}  // namespace

void RetireUnseen() { Observe(Step::kRetire); }

const char* OpAttrs::Get(const char* key) const {
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(keys[i], key) == 0) return values[i];
  }
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
    tofu::Prepared(spec).Run(sources, region);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}
