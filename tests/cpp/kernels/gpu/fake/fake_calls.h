// Counts calls by name, and makes those fail that a test asks for, in the stand-ins for
// CUDA's libraries. Every library has its own counts.
#ifndef TOFU_TESTS_CPP_KERNELS_GPU_FAKE_FAKE_CALLS_H_
#define TOFU_TESTS_CPP_KERNELS_GPU_FAKE_FAKE_CALLS_H_

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#define FAKE extern "C" __attribute__((visibility("default")))

namespace tofu_fake {

class Calls {
 public:
  // Counts a call. Returns the error that the call has to return, or 0.
  int Count(const char* name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++counts_[name];
    const auto found = failures_.find(name);
    if (found == failures_.end() || found->second.calls-- > 0) return 0;
    const int error = found->second.error;
    failures_.erase(found);
    return error;
  }

  long long CountOf(const char* name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second;
  }

  // Lets `calls` more calls succeed; the one after them returns `error`.
  void Fail(const char* name, int calls, int error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failures_[name] = {calls, error};
  }

 private:
  struct Failure {
    int calls;
    int error;
  };

  std::mutex mutex_;
  std::map<std::string, long long> counts_;
  std::map<std::string, Failure> failures_;
};

// Reads the sizes of the groups in which GPUs reach each other, as in FAKE_GPUS=4,4.
inline std::vector<int> GpuGroups(const char* otherwise) {
  const char* const setting = std::getenv("FAKE_GPUS");
  std::vector<int> sizes;
  for (const char* text = setting != nullptr ? setting : otherwise; *text != '\0';) {
    char* end = nullptr;
    sizes.push_back(static_cast<int>(std::strtol(text, &end, 10)));
    text = *end == ',' ? end + 1 : end;
  }
  return sizes;
}

inline int CountGpus(const std::vector<int>& groups) {
  int count = 0;
  for (const int size : groups) count += size;
  return count;
}

inline bool AreInOneGroup(const std::vector<int>& groups, int a, int b) {
  int begin = 0;
  for (const int size : groups) {
    const int end = begin + size;
    if (a >= begin && a < end) return b >= begin && b < end;
    begin = end;
  }
  return false;
}

}  // namespace tofu_fake

#endif  // TOFU_TESTS_CPP_KERNELS_GPU_FAKE_FAKE_CALLS_H_
