#include "multifetch_gpu.h"

#include <cstdint>
#include <string>

#include "kernels/gpu_fetch.h"

namespace tofu {
namespace {

// Into element `index` of the first output.
void WriteNumber(const OpArrays& arrays, int index, uintptr_t value) {
  const CudaDriver& driver = CudaDriver::Default();
  const CudaDriver::Current current(driver, Gpus::Default().Context(arrays.device));
  driver.WriteNumber(
      reinterpret_cast<CudaAddress>(static_cast<int64_t*>(arrays.outputs[0]) + index),
      value, arrays.stream);
}

}  // namespace

void PublishOnGpu(const OpArrays& arrays) {
  Gpus::Default().Publish(arrays.device);
  for (int i = 0; i < arrays.num_inputs; ++i) {
    WriteNumber(arrays, i, reinterpret_cast<uintptr_t>(arrays.inputs[i]));
  }
}

// All owners have published already, since their handles are here.
void FetchOnGpu(const std::vector<std::string>& specs,
                const std::vector<std::vector<const void*>>& sources,
                const OpArrays& arrays) {
  Gpus& gpus = Gpus::Default();
  gpus.ReachOwners(arrays.device);
  const size_t last = sources.size() - 1;
  for (size_t i = 0; i <= last; ++i) {
    // The last kernel in the stream acknowledges for all.
    gpus.Prepare(specs[i], arrays.device)
        .Launch(sources[i].data(), static_cast<int>(sources[i].size()), arrays.outputs[i],
                i == last ? arrays.outputs[i + 1] : nullptr, arrays.stream);
  }
}

void RetireOnGpu(const OpArrays& arrays) { WriteNumber(arrays, 0, 0); }

}  // namespace tofu

// Sets where compiled kernels are kept on disk.
extern "C" __attribute__((visibility("default"))) void TofuKeepKernels(
    const char* folder) {
  tofu::Gpus::Default().KeepKernels(folder);
}

// Lets fetches of other GPUs read the memory of GPU `owner`, without MXNet.
extern "C" __attribute__((visibility("default"))) void TofuPublishGpu(int owner) {
  tofu::Gpus::Default().Publish(owner);
}

// Runs one specification on a GPU without MXNet, for measurements and tests; all
// addresses are on devices. Returns null, or what went wrong.
extern "C" __attribute__((visibility("default"))) const char* TofuRunMultiFetchOnGpu(
    const char* spec, int device, void* stream, const void* const* sources,
    int num_sources, void* region) {
  thread_local std::string problem;
  try {
    tofu::Gpus& gpus = tofu::Gpus::Default();
    gpus.ReachOwners(device);
    gpus.Prepare(spec, device).Launch(sources, num_sources, region, nullptr, stream);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}
