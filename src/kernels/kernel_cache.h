// Compiled kernels on disk: compiling one takes some 50 ms, reading it none.
//
// A file belongs to one text, architecture and version of the compiler. Its name is a
// hash of them, and it begins with them: what does not match is not used.
//
// The folder has a limit. What was used longest ago is removed first; a file's time of
// modification is that of its last use. Any number of threads and processes may share a
// folder: a file that one removes while another reads it is read to its end.
//
// Errors: none; what cannot be read is compiled, what cannot be written is not kept.
#ifndef TOFU_KERNELS_KERNEL_CACHE_H_
#define TOFU_KERNELS_KERNEL_CACHE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tofu {

// A kernel takes some 10 kB, text and image (means of 5 kB, as NVRTC 11.8 and 13.5 make
// them), and WResNet-50-4 over 8 workers has 422 of them: some 15 such plans.
constexpr int64_t kMaxCacheBytes = int64_t{64} << 20;

class KernelCache {
 public:
  // In `folder`, which is made when something is kept. Empty: nothing is kept.
  explicit KernelCache(std::string folder, int64_t max_bytes = kMaxCacheBytes);

  // The image that was kept under `key`; this is a use of it.
  std::optional<std::string> Find(const std::string& key) const;

  // Other processes see all of it or nothing. An image that takes more than a sixteenth
  // of the limit is not kept.
  void Keep(const std::string& key, const std::string& image) const;

  // Where `key` is kept.
  std::string PathOf(const std::string& key) const;

 private:
  void MakeRoom(int64_t added_bytes) const;

  std::string folder_;
  int64_t max_bytes_;
  // What has been added since the folder was looked through; shared with copies.
  std::shared_ptr<std::atomic<int64_t>> added_bytes_;
};

}  // namespace tofu

#endif  // TOFU_KERNELS_KERNEL_CACHE_H_
