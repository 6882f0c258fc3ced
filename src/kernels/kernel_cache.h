// Compiled kernels on disk: compiling one takes about 50 ms, reading it almost none.
//
// A file belongs to one text, architecture and compiler version. Its name is the SHA-256
// of them, and it starts with them; a file that does not match is not used.
//
// Kernels run with the user's rights, so the folder is the user's own: a folder or a file
// that belongs to somebody else, that others can write to, or that is a link, is not
// used.
//
// The folder has a size limit. The least recently used files are removed first; a file's
// modification time is that of its last use. Any number of threads and processes may
// share a folder: a reader can finish a file that another process removes.
//
// Errors: none; if a file cannot be read, its kernel is compiled again; if it cannot be
//         written, the kernel is not kept.
#ifndef TOFU_KERNELS_KERNEL_CACHE_H_
#define TOFU_KERNELS_KERNEL_CACHE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tofu {

// A kernel takes about 10 kB, text and image (5 kB each on average, with NVRTC 11.8 and
// 13.5), and WResNet-50-4 over 8 workers has 422 kernels: about 15 such plans fit.
constexpr int64_t kMaxCacheBytes = int64_t{64} << 20;

class KernelCache {
 public:
  // Keeps files in `folder`, which is created for the first one. Empty: keeps nothing.
  explicit KernelCache(std::string folder, int64_t max_bytes = kMaxCacheBytes);

  // The image kept under `key`; counts as a use.
  std::optional<std::string> Find(const std::string& key) const;

  // Other processes see the whole file or nothing. An image of more than a sixteenth of
  // the limit is not kept.
  void Keep(const std::string& key, const std::string& image) const;

  // The file that holds `key`.
  std::string PathOf(const std::string& key) const;

 private:
  void MakeRoom(int64_t added_bytes) const;

  std::string folder_;
  int64_t max_bytes_;
  // Bytes added since the folder was last scanned; shared with copies.
  std::shared_ptr<std::atomic<int64_t>> added_bytes_;
};

}  // namespace tofu

#endif  // TOFU_KERNELS_KERNEL_CACHE_H_
