// Stands in for the other functions of NVIDIA's driver that measuring programs call: all
// work happens at once, and events are times.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/gpu/fake/fake_calls.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMemory = size_t{16} << 30;

// CUDA_MEMCPY2D: a side, without arrays.
struct Side {
  size_t x;
  size_t y;
  size_t type;
  void* host;
  uint64_t device;
  void* array;
  size_t pitch;
};
struct Copy2D {
  Side from;
  Side to;
  size_t width;
  size_t height;
};

char* At(uint64_t address) { return reinterpret_cast<char*>(address); }

}  // namespace

FAKE int cuDriverGetVersion(int* version) {
  *version = 11020;
  return 0;
}

FAKE int cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, "stand-in", static_cast<size_t>(size));
  return 0;
}

FAKE int cuMemGetInfo_v2(size_t* free_bytes, size_t* bytes) {
  *free_bytes = *bytes = kMemory;
  return 0;
}

FAKE int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t bytes) {
  std::memset(At(to), value, bytes);
  return 0;
}

FAKE int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void*) {
  return cuMemsetD8_v2(to, value, bytes);
}

FAKE int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void*) {
  std::memmove(At(to), At(from), bytes);
  return 0;
}

FAKE int cuMemcpy2DAsync_v2(const Copy2D* copy, void*) {
  for (size_t row = 0; row < copy->height; ++row) {
    std::memcpy(At(copy->to.device) + row * copy->to.pitch,
                At(copy->from.device) + row * copy->from.pitch, copy->width);
  }
  return 0;
}

FAKE int cuStreamCreate(void** stream, unsigned int) {
  *stream = std::malloc(1);
  return 0;
}

FAKE int cuEventCreate(Clock::time_point** event, unsigned int) {
  *event = new Clock::time_point;
  return 0;
}

FAKE int cuEventRecord(Clock::time_point* event, void*) {
  *event = Clock::now();
  return 0;
}

FAKE int cuEventSynchronize(void*) { return 0; }

FAKE int cuEventElapsedTime(float* milliseconds, const Clock::time_point* begin,
                            const Clock::time_point* end) {
  *milliseconds = std::chrono::duration<float, std::milli>(*end - *begin).count();
  return 0;
}

FAKE int cuEventDestroy_v2(Clock::time_point* event) {
  delete event;
  return 0;
}
