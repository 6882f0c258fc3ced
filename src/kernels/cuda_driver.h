// The few functions of CUDA's driver that MultiFetch needs, found at run time.
//
// Errors: CudaError if there is no driver, or if it fails, with CUDA's name of the
//         failure.
#ifndef TOFU_KERNELS_CUDA_DRIVER_H_
#define TOFU_KERNELS_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/shared_library.h"

namespace tofu {

using CudaContext = struct OpaqueContext*;
using CudaModule = struct OpaqueModule*;
using CudaFunction = struct OpaqueFunction*;
using CudaAddress = uint64_t;  // in a device's memory

class CudaDriver {
 public:
  // The only one in a process; every call throws if there is no driver.
  static const CudaDriver& Default();

  int CountDevices() const;
  // Compute capability, 80 for 8.0.
  int Arch(int device) const;
  // The context that MXNet uses too. It is never released.
  CudaContext PrimaryContext(int device) const;

  // Makes a context the thread's current one while this object lives.
  class Current {
   public:
    Current(const CudaDriver& driver, CudaContext context);
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current();

   private:
    const CudaDriver& driver_;
  };

  // In the current context. Modules stay loaded.
  CudaFunction LoadFunction(const std::string& image, const std::string& name) const;
  CudaAddress Allocate(size_t bytes) const;
  void Free(CudaAddress memory) const;
  // Frees in a context; a device that has failed reports it at its next call.
  void GiveUp(CudaContext context, CudaAddress memory) const;
  void CopyToDevice(CudaAddress to, const void* from, size_t bytes) const;
  void CopyToHost(void* to, CudaAddress from, size_t bytes) const;
  void Launch(CudaFunction function, int blocks, int threads, void* stream,
              void** arguments) const;
  void Wait(void* stream) const;
  bool CanReach(int reader, int owner) const;
  // Lets kernels of the current context read the memory of `owner`.
  void EnablePeer(CudaContext owner) const;

 private:
  CudaDriver();
  int Handle(int device) const;
  void Check(int result, const std::string& doing) const;

  SharedLibrary library_;
  int (*init_)(unsigned int flags) = nullptr;
  int (*error_name_)(int result, const char** name) = nullptr;
  int (*count_devices_)(int* count) = nullptr;
  int (*device_)(int* handle, int device) = nullptr;
  int (*attribute_)(int* value, int attribute, int device) = nullptr;
  int (*retain_)(CudaContext* context, int device) = nullptr;
  int (*push_)(CudaContext context) = nullptr;
  int (*pop_)(CudaContext* context) = nullptr;
  int (*load_)(CudaModule* module, const void* image) = nullptr;
  int (*find_)(CudaFunction* function, CudaModule module, const char* name) = nullptr;
  int (*allocate_)(CudaAddress* memory, size_t bytes) = nullptr;
  int (*free_)(CudaAddress memory) = nullptr;
  int (*to_device_)(CudaAddress to, const void* from, size_t bytes) = nullptr;
  int (*to_host_)(void* to, CudaAddress from, size_t bytes) = nullptr;
  int (*launch_)(CudaFunction function, unsigned int grid_x, unsigned int grid_y,
                 unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                 unsigned int block_z, unsigned int shared_bytes, void* stream,
                 void** arguments, void** extra) = nullptr;
  int (*wait_)(void* stream) = nullptr;
  int (*can_reach_)(int* can, int reader, int owner) = nullptr;
  int (*enable_peer_)(CudaContext owner, unsigned int flags) = nullptr;
};

// Memory of a device with a copy of `data` in it, freed with this object.
class DeviceMemory {
 public:
  DeviceMemory(const CudaDriver& driver, CudaContext context, const void* data,
               size_t bytes);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  CudaAddress address() const { return address_; }

 private:
  DeviceMemory(const CudaDriver& driver, CudaContext context, size_t bytes);

  const CudaDriver& driver_;
  const CudaContext context_;
  CudaAddress address_ = 0;
};

}  // namespace tofu

#endif  // TOFU_KERNELS_CUDA_DRIVER_H_
