// MultiFetch on GPUs: reads the tiles in place, through unified addresses.
//
// A specification is compiled when a device first meets it, once for all devices of a
// kind, and then kept, also on disk (kernel_cache.h). All functions may be called from
// several threads at once. If a specification's own kernel does not compile and it must
// use the generic one, a message on standard error says so, once.
//
// Errors: CudaError if there is no driver or no NVRTC; SpecError for a specification with
// too many sources.
#ifndef TOFU_KERNELS_GPU_FETCH_H_
#define TOFU_KERNELS_GPU_FETCH_H_

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda_compile.h"
#include "kernels/cuda_driver.h"

namespace tofu {

// A kernel on one device, ready to run.
class GpuFetch {
 public:
  GpuFetch(const CompiledFetch& compiled, const CudaDriver& driver, CudaContext context);

  // Runs after everything that is already in the stream. `sources`: their addresses.
  void Launch(std::vector<const void*> sources, void* region, void* stream) const;

 private:
  const CudaDriver& driver_;
  CudaContext context_;
  CudaFunction function_;
  int blocks_;
  int threads_;
  int num_sources_;                    // in TofuSources
  std::optional<DeviceMemory> boxes_;  // of the generic kernel
};

// The process's GPUs.
class Gpus {
 public:
  static Gpus& Default();

  // Sets the folder on disk for compiled kernels; empty: none.
  void KeepKernels(const std::string& folder);

  // The kernel for a specification (`text` is the same as WriteSpec's) on a device.
  const GpuFetch& Prepare(const std::string& text, int device);

  // Lets kernels on every one of these devices read the memory of the others. Returns the
  // pairs (reader, owner) for which the driver cannot do that.
  std::vector<std::pair<int, int>> Connect(const std::vector<int>& devices);

  CudaContext Context(int device);

 private:
  // State of one device.
  struct Device {
    CudaContext context = nullptr;
    int arch = 0;
    std::map<std::string, std::unique_ptr<GpuFetch>> fetches;
  };

  Device& Open(int device);  // with the mutex locked
  // A kernel's image. A caller waits while another thread compiles it.
  std::string Image(const CudaKernel& kernel, int arch);
  void TellOfFallback(const CompiledFetch& compiled);

  std::mutex mutex_;
  std::map<int, Device> devices_;
  KernelCache cache_{""};
  // By architecture and text.
  std::map<std::pair<int, std::string>, std::shared_future<std::string>> images_;
  bool has_told_ = false;
};

}  // namespace tofu

#endif  // TOFU_KERNELS_GPU_FETCH_H_
