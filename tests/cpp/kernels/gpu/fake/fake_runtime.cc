// Stands in for libcudart.so.11.0 as MXNet's wheel calls it: memory is the host's, copies
// happen at once, so streams and events have nothing to order, and MXNet's own kernels
// compute nothing. An error stays the thread's last one until it is asked for, as CUDA's.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gpu/fake/fake_calls.h"

// Counts the call, and returns if a test wants it to fail.
#define COUNT(name) \
  if (const int error = Failed(g_calls.Count(name))) return error

namespace {

constexpr int kInvalidValue = 1;
constexpr int kInvalidDevice = 101;
constexpr int kPeerEnabledAlready = 704;
constexpr int kPeerUnsupported = 217;
constexpr size_t kMemory = size_t{16} << 30;
constexpr int kProcessors = 108;

struct Dim3 {
  unsigned int x, y, z;
};

// The beginning of cudaDeviceProp in CUDA 11.
struct Properties {
  char name[256];
  char ids[32];
  size_t memory;
  size_t shared_memory;
  int registers;
  int warp;
  size_t pitch;
  int block_threads;
  int block_extents[3];
  int grid_extents[3];
  int clock;
  size_t constant_memory;
  int major;
  int minor;
  size_t alignments[2];
  int overlap;
  int processors;
};
static_assert(offsetof(Properties, major) == 360, "CUDA 11's place");
static_assert(offsetof(Properties, processors) == 388, "CUDA 11's place");

// The beginning of cudaFuncAttributes.
struct FunctionAttributes {
  size_t sizes[3];
  int block_threads;
  int registers;
};

struct Configuration {
  Dim3 grid;
  Dim3 block;
  size_t shared_bytes;
  void* stream;
};

// Never freed: MXNet calls CUDA until the process has ended.
auto& g_calls = *new tofu_fake::Calls;
std::mutex g_mutex;
auto& g_peers = *new std::set<std::pair<int, int>>;
thread_local int g_device = 0;
thread_local int g_last_error = 0;
thread_local std::vector<Configuration> g_configurations;

int Failed(int error) {
  if (error != 0) g_last_error = error;
  return error;
}

const std::vector<int>& Groups() {
  static const auto* const groups = new std::vector<int>(tofu_fake::GpuGroups("2"));
  return *groups;
}

int CountDevices() { return tofu_fake::CountGpus(Groups()); }

bool IsDevice(int device) { return device >= 0 && device < CountDevices(); }

int Allocate(void** memory, size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
  return *memory == nullptr ? Failed(2) : 0;
}

int Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
  return 0;
}

// A stream or an event: an address of its own.
int Make(void** made) {
  *made = std::malloc(1);
  return 0;
}

}  // namespace

// --- for tests -----------------------------------------------------------------

FAKE long long FakeRuntimeCalls(const char* name) { return g_calls.CountOf(name); }

FAKE void FakeRuntimeFails(const char* name, int calls, int error) {
  g_calls.Fail(name, calls, error);
}

// --- devices -------------------------------------------------------------------

FAKE int cudaGetDeviceCount(int* count) {
  *count = CountDevices();
  return 0;
}

FAKE int cudaGetDevice(int* device) {
  *device = g_device;
  return 0;
}

FAKE int cudaSetDevice(int device) {
  if (!IsDevice(device)) return Failed(kInvalidDevice);
  g_device = device;
  return 0;
}

FAKE int cudaGetDeviceProperties(Properties* properties, int device) {
  if (!IsDevice(device)) return Failed(kInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "stand-in");
  properties->memory = kMemory;
  properties->shared_memory = 48 << 10;
  properties->registers = 65536;
  properties->warp = 32;
  properties->block_threads = 1024;
  for (int& extent : properties->block_extents) extent = 1024;
  for (int& extent : properties->grid_extents) extent = 65535;
  properties->major = 8;
  properties->processors = kProcessors;
  return 0;
}

// Numbers of cudaDeviceAttr.
FAKE int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (!IsDevice(device)) return Failed(kInvalidDevice);
  switch (attribute) {
    case 1:
      *value = 1024;
      break;  // threads per block
    case 8:
    case 81:
    case 97:
      *value = 48 << 10;
      break;  // shared memory
    case 10:
      *value = 32;
      break;  // warp
    case 16:
      *value = kProcessors;
      break;
    case 39:
      *value = 2048;
      break;  // threads per processor
    case 75:
      *value = 8;
      break;  // major capability
    default:
      *value = 0;
  }
  return 0;
}

FAKE int cudaDeviceGetP2PAttribute(int* value, int, int, int) {
  *value = 0;
  return 0;
}

FAKE int cudaDriverGetVersion(int* version) {
  *version = 11020;
  return 0;
}

FAKE int cudaDeviceCanAccessPeer(int* can, int reader, int owner) {
  *can = reader != owner && tofu_fake::AreInOneGroup(Groups(), reader, owner) ? 1 : 0;
  return 0;
}

FAKE int cudaDeviceEnablePeerAccess(int owner, unsigned int) {
  if (owner == g_device || !tofu_fake::AreInOneGroup(Groups(), g_device, owner)) {
    return Failed(kPeerUnsupported);
  }
  const std::lock_guard<std::mutex> lock(g_mutex);
  return g_peers.emplace(g_device, owner).second ? 0 : Failed(kPeerEnabledAlready);
}

FAKE int cudaDeviceSynchronize() {
  COUNT("cudaDeviceSynchronize");
  return 0;
}

// --- errors --------------------------------------------------------------------

FAKE int cudaGetLastError() { return std::exchange(g_last_error, 0); }
FAKE int cudaPeekAtLastError() { return g_last_error; }
FAKE const char* cudaGetErrorString(int error) {
  thread_local std::string text;
  text = "error " + std::to_string(error) + " of the stand-in for CUDA";
  return text.c_str();
}
FAKE const char* cudaGetErrorName(int error) {
  return error == 0 ? "cudaSuccess" : "cudaErrorStandIn";
}

// --- memory --------------------------------------------------------------------

FAKE int cudaMalloc(void** memory, size_t bytes) {
  COUNT("cudaMalloc");
  return Allocate(memory, bytes);
}

FAKE int cudaMallocPitch(void** memory, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return Allocate(memory, *pitch * height);
}

FAKE int cudaHostAlloc(void** memory, size_t bytes, unsigned int) {
  return Allocate(memory, bytes);
}

FAKE int cudaFree(void* memory) {
  std::free(memory);
  return 0;
}

FAKE int cudaFreeHost(void* memory) {
  std::free(memory);
  return 0;
}

FAKE int cudaMemGetInfo(size_t* free_bytes, size_t* bytes) {
  *free_bytes = *bytes = kMemory;
  return 0;
}

FAKE int cudaMemcpy(void* to, const void* from, size_t bytes, int) {
  COUNT("cudaMemcpy");
  return Copy(to, from, bytes);
}

FAKE int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void*) {
  COUNT("cudaMemcpyAsync");
  return Copy(to, from, bytes);
}

FAKE int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, void*) {
  COUNT("cudaMemcpyPeerAsync");
  return Copy(to, from, bytes);
}

FAKE int cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                           size_t width, size_t height, int, void*) {
  COUNT("cudaMemcpy2DAsync");
  for (size_t row = 0; row < height; ++row) {
    Copy(static_cast<char*>(to) + row * to_pitch,
         static_cast<const char*>(from) + row * from_pitch, width);
  }
  return 0;
}

FAKE int cudaMemsetAsync(void* to, int value, size_t bytes, void*) {
  COUNT("cudaMemsetAsync");
  if (bytes > 0) std::memset(to, value, bytes);
  return 0;
}

// --- streams and events ----------------------------------------------------------

FAKE int cudaStreamCreate(void** stream) { return Make(stream); }
FAKE int cudaStreamDestroy(void* stream) { return cudaFree(stream); }
FAKE int cudaStreamSynchronize(void*) {
  COUNT("cudaStreamSynchronize");
  return 0;
}
FAKE int cudaStreamWaitEvent(void*, void*, unsigned int) {
  COUNT("cudaStreamWaitEvent");
  return 0;
}
FAKE int cudaEventCreateWithFlags(void** event, unsigned int) { return Make(event); }
FAKE int cudaEventDestroy(void* event) { return cudaFree(event); }
FAKE int cudaEventRecord(void*, void*) { return 0; }

// --- kernels -------------------------------------------------------------------

FAKE void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
FAKE void __cudaRegisterFatBinaryEnd(void**) {}
FAKE void __cudaUnregisterFatBinary(void**) {}
FAKE void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*,
                                 void*, void*, void*, int*) {}
FAKE void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
FAKE char __cudaInitModule(void**) { return 1; }

FAKE unsigned int __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared_bytes,
                                              void* stream) {
  g_configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

FAKE int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared_bytes,
                                    void** stream) {
  if (g_configurations.empty()) return Failed(kInvalidValue);
  const Configuration configuration = g_configurations.back();
  g_configurations.pop_back();
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_bytes = configuration.shared_bytes;
  *stream = configuration.stream;
  return 0;
}

FAKE int cudaLaunchKernel(const void*, Dim3, Dim3, void**, size_t, void*) {
  COUNT("cudaLaunchKernel");
  return 0;
}

FAKE int cudaFuncGetAttributes(FunctionAttributes* attributes, const void*) {
  *attributes = {};
  attributes->block_threads = 1024;
  attributes->registers = 32;
  return 0;
}

FAKE int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*,
                                                                int, size_t,
                                                                unsigned int) {
  *blocks = 2;
  return 0;
}
