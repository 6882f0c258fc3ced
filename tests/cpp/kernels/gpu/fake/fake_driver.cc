// Stands in for NVIDIA's driver, so that all code around the kernels runs without a GPU.
// Devices use the host's memory, in groups that cannot reach each other; $FAKE_GPUS lists
// the groups' sizes, by default two devices and one. A kernel's image is its text;
// fake_kernels.h finds the same kernel, compiled for the CPU.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "kernels/gpu/fake/fake_calls.h"
#include "kernels/gpu/fake/fake_kernels.h"

namespace {

constexpr int kInvalidValue = 1;
constexpr int kInvalidImage = 200;
constexpr int kInvalidContext = 201;
constexpr int kPeerEnabledAlready = 704;
constexpr int kPeerUnsupported = 217;
constexpr int kMaxDevices = 16;

// Never freed: MXNet calls CUDA until the process has ended.
auto& g_calls = *new tofu_fake::Calls;
int g_devices[kMaxDevices];  // a context is the address of one
thread_local std::vector<int*> g_current;
std::mutex g_mutex;
auto& g_peers = *new std::set<std::pair<int, int>>;

const std::vector<int>& Groups() {
  static const auto* const groups = new std::vector<int>(tofu_fake::GpuGroups("2,1"));
  return *groups;
}

int CountDevices() { return tofu_fake::CountGpus(Groups()); }

int DeviceOf(const int* context) { return static_cast<int>(context - g_devices); }

bool HasContext() { return !g_current.empty() && g_current.back() != nullptr; }

}  // namespace

FAKE int cuInit(unsigned int) { return 0; }

FAKE int cuGetErrorName(int result, const char** name) {
  *name = result == kInvalidContext ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR";
  return 0;
}

FAKE int cuDeviceGetCount(int* count) {
  *count = CountDevices();
  return 0;
}

FAKE int cuDeviceGet(int* handle, int device) {
  *handle = device;
  return device >= 0 && device < CountDevices() ? 0 : kInvalidValue;
}

FAKE int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 8 : 0;
  return attribute == 75 || attribute == 76 ? 0 : kInvalidValue;
}

FAKE int cuDevicePrimaryCtxRetain(int** context, int device) {
  *context = &g_devices[device];
  return 0;
}

FAKE int cuCtxSetCurrent(int* context) {
  g_current.assign(1, context);
  return 0;
}

FAKE int cuCtxPushCurrent_v2(int* context) {
  g_current.push_back(context);
  return 0;
}

FAKE int cuCtxPopCurrent_v2(int** context) {
  if (!HasContext()) return kInvalidContext;
  *context = g_current.back();
  g_current.pop_back();
  return 0;
}

// A module and its function are the kernel itself.
FAKE int cuModuleLoadData(tofu::RunEmitted* module, const char* image) {
  if (!HasContext()) return kInvalidContext;
  if (const int error = g_calls.Count("cuModuleLoadData")) return error;
  *module = tofu::FindKernel(image);
  return *module != nullptr ? 0 : kInvalidImage;
}

FAKE int cuModuleGetFunction(tofu::RunEmitted* function, tofu::RunEmitted module,
                             const char* name) {
  *function = module;
  return std::strcmp(name, "tofu_fetch") == 0 ? 0 : kInvalidValue;
}

FAKE int cuMemAlloc_v2(uint64_t* memory, size_t bytes) {
  if (!HasContext()) return kInvalidContext;
  *memory =
      reinterpret_cast<uint64_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return 0;
}

FAKE int cuMemFree_v2(uint64_t memory) {
  std::free(reinterpret_cast<void*>(memory));
  return HasContext() ? 0 : kInvalidContext;
}

FAKE int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return HasContext() ? 0 : kInvalidContext;
}

FAKE int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return HasContext() ? 0 : kInvalidContext;
}

// The kernels' own argument lists, as cuda_source.h and cuda_generic.h say.
FAKE int cuLaunchKernel(tofu::RunEmitted function, unsigned int blocks, unsigned int,
                        unsigned int, unsigned int threads, unsigned int, unsigned int,
                        unsigned int, void*, void** arguments, void**) {
  if (!HasContext()) return kInvalidContext;
  if (const int error = g_calls.Count("cuLaunchKernel")) return error;
  if (blocks == 0 || threads != 256) return kInvalidValue;
  const std::lock_guard<std::mutex> lock(g_mutex);  // one kernel at a time
  function(static_cast<int>(blocks), *static_cast<char**>(arguments[0]),
           static_cast<const char* const*>(arguments[1]),
           *static_cast<const long long**>(arguments[2]));
  return 0;
}

FAKE int cuStreamSynchronize(void*) { return HasContext() ? 0 : kInvalidContext; }

FAKE int cuDeviceCanAccessPeer(int* can, int reader, int owner) {
  *can = reader != owner && tofu_fake::AreInOneGroup(Groups(), reader, owner) ? 1 : 0;
  return 0;
}

FAKE long long FakeDriverCalls(const char* name) { return g_calls.CountOf(name); }

FAKE void FakeDriverFails(const char* name, int calls, int error) {
  g_calls.Fail(name, calls, error);
}

// For tests: whether access was enabled; the kernels here can always read all memory.
FAKE int FakeHasPeerAccess(int reader, int owner) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return g_peers.count({reader, owner}) > 0 ? 1 : 0;
}

FAKE int cuCtxEnablePeerAccess(const int* owner, unsigned int flags) {
  if (!HasContext()) return kInvalidContext;
  const std::lock_guard<std::mutex> lock(g_mutex);
  const int reader = DeviceOf(g_current.back());
  if (flags != 0 || reader == DeviceOf(owner)) return kInvalidValue;
  if (!tofu_fake::AreInOneGroup(Groups(), reader, DeviceOf(owner)))
    return kPeerUnsupported;
  return g_peers.emplace(reader, DeviceOf(owner)).second ? 0 : kPeerEnabledAlready;
}
