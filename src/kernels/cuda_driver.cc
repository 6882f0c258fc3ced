#include "kernels/cuda_driver.h"

namespace tofu {
namespace {

// Numbers of cuda.h.
constexpr int kMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kMinor = 76;
constexpr int kPeerEnabledAlready = 704;  // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED

}  // namespace

CudaDriver::CudaDriver()
    : library_({"libcuda.so.1"},
               "GPUs need NVIDIA's driver: install it, or use TOFU_DEVICE=cpu") {
  library_.Find("cuInit", &init_);
  library_.Find("cuGetErrorName", &error_name_);
  library_.Find("cuDeviceGetCount", &count_devices_);
  library_.Find("cuDeviceGet", &device_);
  library_.Find("cuDeviceGetAttribute", &attribute_);
  library_.Find("cuDevicePrimaryCtxRetain", &retain_);
  library_.Find("cuCtxPushCurrent_v2", &push_);
  library_.Find("cuCtxPopCurrent_v2", &pop_);
  library_.Find("cuModuleLoadData", &load_);
  library_.Find("cuModuleGetFunction", &find_);
  library_.Find("cuMemAlloc_v2", &allocate_);
  library_.Find("cuMemFree_v2", &free_);
  library_.Find("cuMemcpyHtoD_v2", &to_device_);
  library_.Find("cuMemcpyDtoH_v2", &to_host_);
  library_.Find("cuLaunchKernel", &launch_);
  library_.Find("cuStreamSynchronize", &wait_);
  library_.Find("cuDeviceCanAccessPeer", &can_reach_);
  library_.Find("cuCtxEnablePeerAccess", &enable_peer_);
  Check(init_(0), "starting");
}

const CudaDriver& CudaDriver::Default() {
  static const auto* const driver = new CudaDriver;
  return *driver;
}

int CudaDriver::CountDevices() const {
  int count = 0;
  Check(count_devices_(&count), "counting devices");
  return count;
}

int CudaDriver::Handle(int device) const {
  int handle = 0;
  Check(device_(&handle, device), "finding GPU " + std::to_string(device));
  return handle;
}

int CudaDriver::Arch(int device) const {
  int major = 0;
  int minor = 0;
  Check(attribute_(&major, kMajor, Handle(device)), "querying the compute capability");
  Check(attribute_(&minor, kMinor, Handle(device)), "querying the compute capability");
  return 10 * major + minor;
}

CudaContext CudaDriver::PrimaryContext(int device) const {
  CudaContext context = nullptr;
  Check(retain_(&context, Handle(device)), "opening GPU " + std::to_string(device));
  return context;
}

CudaDriver::Current::Current(const CudaDriver& driver, CudaContext context)
    : driver_(driver) {
  driver_.Check(driver_.push_(context), "switching to a context");
}

CudaDriver::Current::~Current() {
  CudaContext context = nullptr;
  driver_.pop_(&context);
}

CudaFunction CudaDriver::LoadFunction(const std::string& image,
                                      const std::string& name) const {
  CudaModule module = nullptr;
  Check(load_(&module, image.c_str()), "loading a kernel");
  CudaFunction function = nullptr;
  Check(find_(&function, module, name.c_str()), "finding a kernel");
  return function;
}

CudaAddress CudaDriver::Allocate(size_t bytes) const {
  CudaAddress memory = 0;
  Check(allocate_(&memory, bytes), "allocating " + std::to_string(bytes) + " bytes");
  return memory;
}

void CudaDriver::Free(CudaAddress memory) const { Check(free_(memory), "freeing"); }

void CudaDriver::GiveUp(CudaContext context, CudaAddress memory) const {
  if (push_(context) != 0) return;
  free_(memory);
  CudaContext popped = nullptr;
  pop_(&popped);
}

void CudaDriver::CopyToDevice(CudaAddress to, const void* from, size_t bytes) const {
  Check(to_device_(to, from, bytes), "copying to a device");
}

void CudaDriver::CopyToHost(void* to, CudaAddress from, size_t bytes) const {
  Check(to_host_(to, from, bytes), "copying from a device");
}

void CudaDriver::Launch(CudaFunction function, int blocks, int threads, void* stream,
                        void** arguments) const {
  Check(launch_(function, static_cast<unsigned int>(blocks), 1, 1,
                static_cast<unsigned int>(threads), 1, 1, 0, stream, arguments, nullptr),
        "launching a kernel");
}

void CudaDriver::Wait(void* stream) const {
  Check(wait_(stream), "waiting for a stream");
}

bool CudaDriver::CanReach(int reader, int owner) const {
  int can = 0;
  Check(can_reach_(&can, Handle(reader), Handle(owner)),
        "querying which GPUs reach each other");
  return can != 0;
}

// MXNet's key-value store, or another library, may already have enabled it.
void CudaDriver::EnablePeer(CudaContext owner) const {
  const int result = enable_peer_(owner, 0);
  if (result != kPeerEnabledAlready) Check(result, "giving access to a peer");
}

void CudaDriver::Check(int result, const std::string& doing) const {
  if (result == 0) return;
  const char* name = nullptr;
  error_name_(result, &name);
  throw CudaError("CUDA's driver failed at " + doing + ": " +
                  (name != nullptr ? name : "error " + std::to_string(result)));
}

DeviceMemory::DeviceMemory(const CudaDriver& driver, CudaContext context, size_t bytes)
    : driver_(driver), context_(context) {
  const CudaDriver::Current current(driver_, context_);
  address_ = driver_.Allocate(bytes);
}

DeviceMemory::DeviceMemory(const CudaDriver& driver, CudaContext context,
                           const void* data, size_t bytes)
    : DeviceMemory(driver, context, bytes) {
  const CudaDriver::Current current(driver_, context_);
  driver_.CopyToDevice(address_, data, bytes);
}

DeviceMemory::~DeviceMemory() { driver_.GiveUp(context_, address_); }

}  // namespace tofu
