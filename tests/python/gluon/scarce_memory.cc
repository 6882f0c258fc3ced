// Stands before the C library's posix_memalign, with which MXNet allocates arrays on CPUs, to
// make it fail on one thread: MXNet runs the operators of a CPU context on a thread of its own.

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace {

using Allocate = int (*)(void** memory, size_t alignment, size_t bytes);

std::atomic<size_t> marked_bytes{0};
std::atomic<uintptr_t> marked_thread{0};
std::atomic<size_t> least_bytes{0};
std::atomic<uintptr_t> victim{0};
std::atomic<int> failures{0};

}  // namespace

extern "C" {

int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  static const auto next = reinterpret_cast<Allocate>(dlsym(RTLD_NEXT, "posix_memalign"));
  const auto thread = static_cast<uintptr_t>(pthread_self());
  if (bytes == marked_bytes) marked_thread = thread;
  const bool is_large = least_bytes != 0 && bytes >= least_bytes;
  if (is_large && (victim == 0 || victim == thread)) {
    ++failures;
    return ENOMEM;
  }
  return next(memory, alignment, bytes);
}

// Remembers the thread that next allocates exactly so many bytes.
void tofu_test_mark(size_t bytes) {
  marked_thread = 0;
  marked_bytes = bytes;
}

uintptr_t tofu_test_marked() { return marked_thread; }

// Makes a thread, or every thread for 0, fail to allocate at least so many bytes; 0 bytes end it.
void tofu_test_fail(uintptr_t thread, size_t bytes) {
  victim = thread;
  least_bytes = bytes;
  if (bytes != 0) failures = 0;
}

int tofu_test_failures() { return failures; }

}  // extern "C"
