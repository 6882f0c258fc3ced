#include "kernels/kernel_cache.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace tofu {
namespace {

// FNV-1a.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

std::string HexText(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// What stands before the image.
std::string Head(const std::string& key, const std::string& image) {
  return "tofu kernel 1 " + std::to_string(key.size()) + " " +
         std::to_string(image.size()) + " " + HexText(Hash(image)) + "\n" + key + "\n";
}

}  // namespace

std::string KernelCache::PathOf(const std::string& key) const {
  return folder_ + "/" + HexText(Hash(key)) + ".kernel";
}

std::optional<std::string> KernelCache::Find(const std::string& key) const {
  if (folder_.empty()) return {};
  std::ifstream file(PathOf(key), std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(file)),
                  std::istreambuf_iterator<char>());
  // The first line, the key and a line's end, as Head writes them.
  const size_t begin = all.find('\n') + 1 + key.size() + 1;
  if (begin > all.size()) return {};
  std::string image = all.substr(begin);
  if (all.compare(0, begin, Head(key, image)) != 0) return {};
  return image;
}

void KernelCache::Keep(const std::string& key, const std::string& image) const {
  if (folder_.empty()) return;
  static std::atomic<int> number{0};
  std::error_code failed;
  std::filesystem::create_directories(folder_, failed);
  const std::string path = PathOf(key);
  const std::string unfinished =
      path + "." + std::to_string(getpid()) + "." + std::to_string(++number);
  bool is_written = false;
  {
    std::ofstream file(unfinished, std::ios::binary);
    file << Head(key, image) << image;
    file.flush();
    is_written = file.good();
  }
  if (is_written) std::filesystem::rename(unfinished, path, failed);
  if (!is_written || failed) std::filesystem::remove(unfinished, failed);
}

}  // namespace tofu
