#include "multifetch_gpu.h"

#include <cstdint>
#include <string>

#include "kernels/gpu_fetch.h"

namespace tofu {
namespace {

void WriteNumber(const OpArrays& arrays, uintptr_t value) {
  const CudaDriver& driver = CudaDriver::Default();
  const CudaDriver::Current current(driver, Gpus::Default().Context(arrays.device));
  driver.WriteNumber(reinterpret_cast<CudaAddress>(arrays.outputs[0]), value,
                     arrays.stream);
}

}  // namespace

void PublishOnGpu(const OpArrays& arrays) {
  Gpus::Default().Publish(arrays.device);
  WriteNumber(arrays, reinterpret_cast<uintptr_t>(arrays.inputs[0]));
}

// All owners have published already, since their handles are here.
void FetchOnGpu(const char* spec, const OpArrays& arrays) {
  Gpus& gpus = Gpus::Default();
  gpus.ReachOwners(arrays.device);
  gpus.Prepare(spec, arrays.device)
      .Launch(arrays.inputs, arrays.num_inputs, arrays.outputs[0], arrays.outputs[1],
              arrays.stream);
}

void RetireOnGpu(const OpArrays& arrays) { WriteNumber(arrays, 0); }

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
