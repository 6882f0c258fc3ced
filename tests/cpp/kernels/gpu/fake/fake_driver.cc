// Stands in for NVIDIA's driver, so everything around the kernels runs without a GPU:
// three devices whose memory is the host's, and the others cannot reach the third. It
// finds the kernels of EmittedSpecs(), compiled for the CPU, by their text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "kernels/emitted/emitted_kernels.h"

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kDevices = 3;
constexpr int kInvalidValue = 1;
constexpr int kInvalidImage = 200;
constexpr int kInvalidContext = 201;
constexpr int kPeerEnabledAlready = 704;

int g_devices[kDevices] = {0, 1, 2};  // a context is the address of its number
thread_local std::vector<int*> g_current;
std::mutex g_mutex;
std::set<std::pair<int, int>> g_peers;

bool HasContext() { return !g_current.empty() && g_current.back() != nullptr; }

}  // namespace

FAKE int cuInit(unsigned int) { return 0; }

FAKE int cuGetErrorName(int result, const char** name) {
  *name = result == kInvalidContext ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR";
  return 0;
}

FAKE int cuDeviceGetCount(int* count) {
  *count = kDevices;
  return 0;
}

FAKE int cuDeviceGet(int* handle, int device) {
  *handle = device;
  return device >= 0 && device < kDevices ? 0 : kInvalidValue;
}

FAKE int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 8 : 0;
  return attribute == 75 || attribute == 76 ? 0 : kInvalidValue;
}

FAKE int cuDevicePrimaryCtxRetain(int** context, int device) {
  *context = &g_devices[device];
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

FAKE int cuModuleLoadData(const tofu::EmittedText** module, const char* image) {
  if (!HasContext()) return kInvalidContext;
  for (const tofu::EmittedText* text = tofu::kEmittedTexts; text->run != nullptr;
       ++text) {
    if (std::strcmp(text->source, image) == 0) {
      *module = text;
      return 0;
    }
  }
  return kInvalidImage;
}

FAKE int cuModuleGetFunction(const tofu::EmittedText** function,
                             const tofu::EmittedText* module, const char* name) {
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

FAKE int cuMemsetD32Async(uint64_t to, unsigned int value, size_t count, void*) {
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(reinterpret_cast<char*>(to) + i * sizeof(value), &value, sizeof(value));
  }
  return HasContext() ? 0 : kInvalidContext;
}

// The kernels' own argument lists, as cuda_source.h and cuda_generic.h say.
FAKE int cuLaunchKernel(const tofu::EmittedText* function, unsigned int blocks,
                        unsigned int, unsigned int, unsigned int threads, unsigned int,
                        unsigned int, unsigned int, void*, void** arguments, void**) {
  if (!HasContext()) return kInvalidContext;
  if (blocks == 0 || threads != 256) return kInvalidValue;
  const std::lock_guard<std::mutex> lock(g_mutex);  // one kernel at a time
  function->run(static_cast<int>(blocks), *static_cast<char**>(arguments[0]),
                *static_cast<long long**>(arguments[1]),
                static_cast<const char* const*>(arguments[2]),
                *static_cast<const long long**>(arguments[3]));
  return 0;
}

FAKE int cuStreamSynchronize(void*) { return HasContext() ? 0 : kInvalidContext; }

FAKE int cuDeviceCanAccessPeer(int* can, int reader, int owner) {
  *can = reader != owner && reader < 2 && owner < 2 ? 1 : 0;
  return 0;
}

// For tests: whether the reader may read the owner's memory; these kernels always can.
FAKE int FakeHasPeerAccess(int reader, int owner) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return g_peers.count({reader, owner}) > 0 ? 1 : 0;
}

FAKE int cuCtxEnablePeerAccess(const int* owner, unsigned int flags) {
  if (!HasContext()) return kInvalidContext;
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (flags != 0 || *g_current.back() == *owner) return kInvalidValue;
  return g_peers.emplace(*g_current.back(), *owner).second ? 0 : kPeerEnabledAlready;
}
