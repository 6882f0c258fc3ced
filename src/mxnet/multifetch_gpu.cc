#include "multifetch_gpu.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/gpu_fetch.h"
#include "kernels/handle.h"

namespace tofu {

namespace {

// A call of a kernel, for messages.
struct CallSite {
  std::string reader;  // of errors: the operator and its worker
  std::vector<int> owners;

  bool operator<(const CallSite& other) const {
    return std::tie(reader, owners) < std::tie(other.reader, other.owners);
  }
};

// All calls that there have been, with numbers from 1 on.
class CallSites {
 public:
  uint32_t NumberOf(const CallSite& site) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto next = static_cast<uint32_t>(sites_.size() + 1);
    const auto [found, is_new] = numbers_.emplace(site, next);
    if (is_new) sites_.push_back(&found->first);
    return found->second;
  }

  std::string Describe(const HandleFault& fault) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool is_known = fault.call <= sites_.size() && fault.source >= 0;
    if (!is_known) return "MultiFetch: a kernel reported a fault of no call";
    const CallSite& site = *sites_[fault.call - 1];
    return RefusalText(site.reader, fault.handle, site.owners[fault.source]);
  }

 private:
  std::mutex mutex_;
  std::map<CallSite, uint32_t> numbers_;
  std::vector<const CallSite*> sites_;
};

CallSites& Sites() {
  static auto* const sites = new CallSites;
  return *sites;
}

// The text of a fault that a device has reported; empty if there is none. Forgets those
// of other devices: one lost handle can lead to several, and the script gets one error.
std::string TakeFault() {
  Gpus& gpus = Gpus::Default();
  std::string text;
  for (const int device : gpus.Opened()) {
    const auto fault = gpus.TakeFault(device);
    if (fault && text.empty()) text = Sites().Describe(*fault);
  }
  return text;
}

void ThrowFault() {
  const std::string text = TakeFault();
  if (!text.empty()) throw HandleError(text);
}

}  // namespace

// All handles with one call.
void PublishOnGpu(int owner, const OpArrays& arrays) {
  ThrowFault();
  std::vector<uint64_t> handles;
  for (int i = 0; i < arrays.num_inputs; ++i) {
    handles.push_back(SealHandle(arrays.inputs[i], owner));
  }
  const CudaDriver& driver = CudaDriver::Default();
  const CudaDriver::Current current(driver, Gpus::Default().Context(arrays.device));
  driver.CopyToDevice(reinterpret_cast<CudaAddress>(arrays.outputs[0]), handles.data(),
                      handles.size() * sizeof(handles[0]), arrays.stream);
}

void FetchOnGpu(const OpAttrs& attrs, const std::vector<std::string>& specs,
                const std::vector<RegionSources>& sources, const OpArrays& arrays) {
  ThrowFault();
  Gpus& gpus = Gpus::Default();
  const std::string reader = ReaderText(attrs);
  const size_t last = sources.size() - 1;
  for (size_t i = 0; i <= last; ++i) {
    // The last kernel in the stream acknowledges for all.
    const uint32_t number = Sites().NumberOf({reader, sources[i].owners});
    gpus.Prepare(specs[i], arrays.device)
        .Launch({sources[i].arrays, sources[i].owners, number}, arrays.outputs[i],
                i == last ? arrays.outputs[i + 1] : nullptr, arrays.stream);
  }
}

}  // namespace tofu

// Sets where compiled kernels are kept on disk.
extern "C" __attribute__((visibility("default"))) void TofuKeepKernels(
    const char* folder) {
  tofu::Gpus::Default().KeepKernels(folder);
}

// Lets every one of `count` GPUs read the memory of the others. Sets `apart[r * count +
// o]` to 1 where the driver cannot let the r-th read the o-th, else to 0. Returns null,
// or what went wrong.
extern "C" __attribute__((visibility("default"))) const char* TofuConnectGpus(
    const int* devices, int count, char* apart) {
  thread_local std::string problem;
  std::fill_n(apart, static_cast<size_t>(count) * count, 0);
  try {
    const std::vector<int> given(devices, devices + count);
    for (const auto& [reader, owner] : tofu::Gpus::Default().Connect(given)) {
      for (int r = 0; r < count; ++r) {
        for (int o = 0; o < count; ++o) {
          if (given[r] == reader && given[o] == owner) apart[r * count + o] = 1;
        }
      }
    }
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}

// A handle that a kernel has refused since the last call: the text of an error, or null.
extern "C" __attribute__((visibility("default"))) const char* TofuTakeFault() {
  thread_local std::string problem;
  problem = tofu::TakeFault();
  return problem.empty() ? nullptr : problem.c_str();
}

// Runs one specification on a GPU without MXNet, for measurements and tests; all
// addresses are on devices, which TofuConnectGpus has connected. Handles are worker 0's.
// Returns null, or what went wrong.
extern "C" __attribute__((visibility("default"))) const char* TofuRunMultiFetchOnGpu(
    const char* spec, int device, void* stream, const void* const* sources,
    int num_sources, void* region) {
  thread_local std::string problem;
  try {
    tofu::Gpus& gpus = tofu::Gpus::Default();
    tofu::FetchCall call;
    call.sources.assign(sources, sources + num_sources);
    call.owners.resize(tofu::ReadSpec(spec).num_remote);
    call.number = tofu::Sites().NumberOf({"MultiFetch", call.owners});
    gpus.Prepare(spec, device).Launch(call, region, nullptr, stream);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}
