#include "multifetch_gpu.h"

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "kernels/gpu_fetch.h"

namespace tofu {

void FetchOnGpu(const std::vector<std::string>& specs, const FetchBundle& bundle,
                const OpArrays& arrays) {
  void* const* tile = arrays.inputs;
  for (size_t i = 0; i < bundle.size(); ++i) {
    const std::vector<const void*> tiles(tile, tile + bundle[i].sources.size());
    tile += tiles.size();
    Gpus::Default()
        .Prepare(specs[i], arrays.device)
        .Launch(tiles, arrays.outputs[i], arrays.stream);
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
    const std::vector<const void*> tiles(sources, sources + num_sources);
    tofu::Gpus::Default().Prepare(spec, device).Launch(tiles, region, stream);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}
