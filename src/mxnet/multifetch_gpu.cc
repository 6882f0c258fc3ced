#include "multifetch_gpu.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gpu_fetch.h"

namespace tofu {

// All handles with one call.
void PublishOnGpu(const OpArrays& arrays) {
  std::vector<uint64_t> handles;
  for (int i = 0; i < arrays.num_inputs; ++i) {
    handles.push_back(reinterpret_cast<uintptr_t>(arrays.inputs[i]));
  }
  const CudaDriver& driver = CudaDriver::Default();
  const CudaDriver::Current current(driver, Gpus::Default().Context(arrays.device));
  driver.CopyToDevice(reinterpret_cast<CudaAddress>(arrays.outputs[0]), handles.data(),
                      handles.size() * sizeof(handles[0]), arrays.stream);
}

void FetchOnGpu(const std::vector<std::string>& specs,
                const std::vector<std::vector<const void*>>& sources,
                const OpArrays& arrays) {
  Gpus& gpus = Gpus::Default();
  const size_t last = sources.size() - 1;
  for (size_t i = 0; i <= last; ++i) {
    // The last kernel in the stream acknowledges for all.
    gpus.Prepare(specs[i], arrays.device)
        .Launch(sources[i].data(), static_cast<int>(sources[i].size()), arrays.outputs[i],
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

// Runs one specification on a GPU without MXNet, for measurements and tests; all
// addresses are on devices, which TofuConnectGpus has connected. Returns null, or what
// went wrong.
extern "C" __attribute__((visibility("default"))) const char* TofuRunMultiFetchOnGpu(
    const char* spec, int device, void* stream, const void* const* sources,
    int num_sources, void* region) {
  thread_local std::string problem;
  try {
    tofu::Gpus& gpus = tofu::Gpus::Default();
    gpus.Prepare(spec, device).Launch(sources, num_sources, region, nullptr, stream);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}
