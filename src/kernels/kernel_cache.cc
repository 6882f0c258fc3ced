#include "kernels/kernel_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

namespace tofu {
namespace {

namespace fs = std::filesystem;

constexpr char kEnding[] = ".kernel";
constexpr size_t kHashDigits = 16;
// A process scans the folder when it adds its first file, and again when it has added
// this fraction of the limit, which is left free.
constexpr int64_t kParts = 16;

// FNV-1a.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

std::string HexText(uint64_t value) {
  char text[kHashDigits + 1];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// The text before the image.
std::string Head(const std::string& key, const std::string& image) {
  return "tofu kernel 1 " + std::to_string(key.size()) + " " +
         std::to_string(image.size()) + " " + HexText(Hash(image)) + "\n" + key + "\n";
}

// Whether a file belongs to a cache, finished or not.
bool IsOurs(const std::string& name) {
  return name.find_first_not_of("0123456789abcdef") == kHashDigits &&
         name.compare(kHashDigits, sizeof(kEnding) - 1, kEnding) == 0;
}

struct KeptFile {
  fs::file_time_type used;
  fs::path path;
  int64_t bytes = 0;
};

// The files, least recently used first. Others may remove files meanwhile.
std::vector<KeptFile> KeptFiles(const std::string& folder) {
  std::vector<KeptFile> files;
  std::error_code failed;
  fs::directory_iterator file(folder, failed);
  for (; !failed && file != fs::directory_iterator(); file.increment(failed)) {
    if (!IsOurs(file->path().filename().string())) continue;
    std::error_code gone;
    const auto used = fs::last_write_time(file->path(), gone);
    if (gone) continue;
    const auto bytes = fs::file_size(file->path(), gone);
    if (!gone) files.push_back({used, file->path(), static_cast<int64_t>(bytes)});
  }
  std::sort(files.begin(), files.end(), [](const KeptFile& a, const KeptFile& b) {
    return std::tie(a.used, a.path) < std::tie(b.used, b.path);
  });
  return files;
}

}  // namespace

KernelCache::KernelCache(std::string folder, int64_t max_bytes)
    : folder_(std::move(folder)),
      max_bytes_(max_bytes),
      added_bytes_(std::make_shared<std::atomic<int64_t>>(max_bytes)) {}

std::string KernelCache::PathOf(const std::string& key) const {
  return folder_ + "/" + HexText(Hash(key)) + kEnding;
}

std::optional<std::string> KernelCache::Find(const std::string& key) const {
  if (folder_.empty()) return {};
  std::ifstream file(PathOf(key), std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(file)),
                  std::istreambuf_iterator<char>());
  // The first line, the key and a line end, as Head writes them.
  const size_t begin = all.find('\n') + 1 + key.size() + 1;
  if (begin > all.size()) return {};
  std::string image = all.substr(begin);
  if (all.compare(0, begin, Head(key, image)) != 0) return {};
  std::error_code failed;
  fs::last_write_time(PathOf(key), fs::file_time_type::clock::now(), failed);
  return image;
}

void KernelCache::Keep(const std::string& key, const std::string& image) const {
  const std::string head = Head(key, image);
  const auto bytes = static_cast<int64_t>(head.size() + image.size());
  if (folder_.empty() || bytes > max_bytes_ / kParts) return;
  MakeRoom(bytes);
  static std::atomic<int> number{0};
  std::error_code failed;
  fs::create_directories(folder_, failed);
  const std::string path = PathOf(key);
  const std::string unfinished =
      path + "." + std::to_string(getpid()) + "." + std::to_string(++number);
  bool is_written = false;
  {
    std::ofstream file(unfinished, std::ios::binary);
    file << head << image;
    file.flush();
    is_written = file.good();
  }
  if (is_written) fs::rename(unfinished, path, failed);
  if (!is_written || failed) fs::remove(unfinished, failed);
}

void KernelCache::MakeRoom(int64_t added_bytes) const {
  const int64_t part = max_bytes_ / kParts;
  if (added_bytes_->fetch_add(added_bytes) + added_bytes <= part) return;
  *added_bytes_ = added_bytes;
  const std::vector<KeptFile> files = KeptFiles(folder_);
  int64_t bytes = 0;
  for (const KeptFile& file : files) bytes += file.bytes;
  for (const KeptFile& file : files) {
    if (bytes <= max_bytes_ - part) return;
    std::error_code failed;
    fs::remove(file.path, failed);  // false, and no error, when another was faster
    if (!failed) bytes -= file.bytes;
  }
}

}  // namespace tofu
