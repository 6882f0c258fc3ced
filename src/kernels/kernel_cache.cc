#include "kernels/kernel_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/sha256.h"

namespace tofu {
namespace {

namespace fs = std::filesystem;

constexpr char kEnding[] = ".kernel";
constexpr size_t kHashDigits = 64;
// A process scans the folder when it adds its first file, and again when it has added
// this fraction of the limit, which is left free.
constexpr int64_t kParts = 16;

// An open file; closed at the end.
class OpenFile {
 public:
  OpenFile(const std::string& path, int flags)
      : descriptor_(
            open(path.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int descriptor() const { return descriptor_; }

  // Whether only the user can have written it.
  bool IsOwn(mode_t kind) const {
    struct stat status{};
    return descriptor_ >= 0 && fstat(descriptor_, &status) == 0 &&
           (status.st_mode & S_IFMT) == kind && status.st_uid == geteuid() &&
           (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  }

 private:
  const int descriptor_;
};

bool IsOwnFolder(const std::string& folder) {
  return OpenFile(folder, O_RDONLY | O_DIRECTORY).IsOwn(S_IFDIR);
}

// The file's text; nothing unless it is the user's own.
std::optional<std::string> ReadOwn(const std::string& path) {
  const OpenFile file(path, O_RDONLY | O_NONBLOCK);
  if (!file.IsOwn(S_IFREG)) return {};
  std::string text;
  char part[1 << 14];
  ssize_t count = 0;
  while ((count = read(file.descriptor(), part, sizeof(part))) > 0) {
    text.append(part, static_cast<size_t>(count));
  }
  if (count < 0) return {};
  return text;
}

// Writes a new file; false if it exists or is not written in full.
bool WriteNew(const std::string& path, const std::string& text) {
  const OpenFile file(path, O_WRONLY | O_CREAT | O_EXCL);
  size_t done = 0;
  while (file.descriptor() >= 0 && done < text.size()) {
    const ssize_t count =
        write(file.descriptor(), text.data() + done, text.size() - done);
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return done == text.size();
}

// The text before the image.
std::string Head(const std::string& key, const std::string& image) {
  return "tofu kernel 2 " + std::to_string(key.size()) + " " +
         std::to_string(image.size()) + " " + Sha256(image) + "\n" + key + "\n";
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
  return folder_ + "/" + Sha256(key) + kEnding;
}

std::optional<std::string> KernelCache::Find(const std::string& key) const {
  if (folder_.empty() || !IsOwnFolder(folder_)) return {};
  const std::string all = ReadOwn(PathOf(key)).value_or("");
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
  std::error_code failed;
  if (fs::create_directories(folder_, failed)) {
    fs::permissions(folder_, fs::perms::owner_all, failed);
  }
  if (!IsOwnFolder(folder_)) return;
  MakeRoom(bytes);
  static std::atomic<int> number{0};
  const std::string path = PathOf(key);
  const std::string unfinished =
      path + "." + std::to_string(getpid()) + "." + std::to_string(++number);
  const bool is_written = WriteNew(unfinished, head + image);
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
