// MultiFetch on GPUs: reads the tiles where they lie, through unified addresses.
//
// A specification is compiled when a device meets it first, once for all devices of a
// kind, and then kept, on disk too (kernel_cache.h). All functions may be called from
// several threads at once. What has to do with the generic kernel because its own does
// not compile is said on the standard error output, once.
//
// Errors: CudaError where there is no driver, no NVRTC, or no way from one GPU to
//         another; SpecError for a specification with too many sources.
#ifndef TOFU_KERNELS_GPU_FETCH_H_
#define TOFU_KERNELS_GPU_FETCH_H_

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "kernels/cuda_compile.h"
#include "kernels/cuda_driver.h"

namespace tofu {

// A kernel on one device, ready to run.
class GpuFetch {
 public:
  GpuFetch(const CompiledFetch& compiled, const CudaDriver& driver, CudaContext context);

  // Runs after all that the stream has got before. `sources[i]` is the address of
  // source i, for remote ones that of its handle; `done`, a number on this device,
  // becomes 0.
  void Launch(const void* const* sources, int num_sources, void* region, void* done,
              void* stream) const;

 private:
  const CudaDriver& driver_;
  CudaContext context_;
  CudaFunction function_;
  int blocks_;
  int threads_;
  int num_sources_;
  std::optional<DeviceMemory> boxes_;  // of the generic kernel
};

// The GPUs of a process.
class Gpus {
 public:
  static Gpus& Default();

  // Where compiled kernels are kept on disk from now on; empty: nowhere.
  void KeepKernels(const std::string& folder);

  // The kernel for a specification (`text` is the same as WriteSpec's) on a device.
  const GpuFetch& Prepare(const std::string& text, int device);

  // Says that tiles on `owner` are read from now on.
  void Publish(int owner);

  // Lets kernels on `reader` read all tiles that have been published.
  void ReachOwners(int reader);

  CudaContext Context(int device);

 private:
  // What is known of one device.
  struct Device {
    CudaContext context = nullptr;
    int arch = 0;
    std::map<std::string, std::unique_ptr<GpuFetch>> fetches;
    std::set<int> reached;
  };

  Device& Open(int device);  // with the mutex locked
  // A kernel's image. Who asks while another thread compiles it waits for that.
  std::string Image(const CudaKernel& kernel, int arch);
  void TellOfFallback(const CompiledFetch& compiled);

  std::mutex mutex_;
  std::map<int, Device> devices_;
  std::set<int> owners_;
  KernelCache cache_{""};
  // By architecture and text.
  std::map<std::pair<int, std::string>, std::shared_future<std::string>> images_;
  bool has_told_ = false;
};

}  // namespace tofu

#endif  // TOFU_KERNELS_GPU_FETCH_H_
