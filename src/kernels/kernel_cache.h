// Compiled kernels on disk: compiling one takes some 50 ms, reading it none.
//
// A file belongs to one text, architecture and version of the compiler. Its name is a
// hash of them, and it begins with them: what does not match is not used.
//
// Errors: none; what cannot be read is compiled, what cannot be written is not kept.
#ifndef TOFU_KERNELS_KERNEL_CACHE_H_
#define TOFU_KERNELS_KERNEL_CACHE_H_

#include <optional>
#include <string>

namespace tofu {

class KernelCache {
 public:
  // In `folder`, which is made when something is kept. Empty: nothing is kept.
  explicit KernelCache(std::string folder) : folder_(std::move(folder)) {}

  // The image that was kept under `key`.
  std::optional<std::string> Find(const std::string& key) const;

  // Other processes see all of it or nothing.
  void Keep(const std::string& key, const std::string& image) const;

  // Where `key` is kept.
  std::string PathOf(const std::string& key) const;

 private:
  std::string folder_;
};

}  // namespace tofu

#endif  // TOFU_KERNELS_KERNEL_CACHE_H_
