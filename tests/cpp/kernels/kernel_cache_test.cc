#include "kernels/kernel_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tofu {
namespace {

namespace fs = std::filesystem;

// An empty folder that is removed after the test.
class Folder {
 public:
  Folder() {
    char pattern[] = "/tmp/tofu-test-XXXXXX";
    path_ = mkdtemp(pattern);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The digits in the names of files.
const std::string kDigits(64, 'a');

TEST(KernelCache, FindsWhatItKeeps) {
  const Folder folder;
  const KernelCache cache(folder.path() + "/new/folder");
  EXPECT_FALSE(cache.Find("sm_80").has_value());
  const std::string image("an\0image\n", 9);
  cache.Keep("sm_80\nsource", image);
  EXPECT_EQ(cache.Find("sm_80\nsource"), image);
  EXPECT_FALSE(cache.Find("sm_70\nsource").has_value());
  int files = 0;
  for (const auto& file : fs::directory_iterator(folder.path() + "/new/folder")) {
    EXPECT_EQ(file.path().string(), cache.PathOf("sm_80\nsource"));
    ++files;
  }
  EXPECT_EQ(files, 1) << "an unfinished file is left";
}

TEST(KernelCache, DoesNotTrustDamagedFiles) {
  const Folder folder;
  const KernelCache cache(folder.path());
  cache.Keep("key", "a compiled kernel");
  const std::string path = cache.PathOf("key");
  std::string whole;
  {
    std::ifstream file(path, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(file), {});
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] + 1);
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_FALSE(cache.Find("key").has_value()) << "byte " << at;
    std::ofstream(path, std::ios::binary) << whole.substr(0, at);
    EXPECT_FALSE(cache.Find("key").has_value()) << at << " bytes";
  }
  cache.Keep("key", "another");
  EXPECT_EQ(cache.Find("key"), "another");
}

// Changes, loses or repeats up to four of the bytes, or cuts off the end.
std::string Mutated(std::string bytes, std::mt19937& random) {
  const auto below = [&random](size_t limit) { return random() % limit; };
  for (size_t left = 1 + below(4); left > 0 && !bytes.empty(); --left) {
    const size_t at = below(bytes.size());
    switch (below(4)) {
      case 0:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 1:
        bytes.erase(at, 1 + below(20));
        break;
      case 2:
        bytes.insert(at, bytes.substr(at, 1 + below(20)));
        break;
      default:
        bytes.resize(at);
    }
  }
  return bytes;
}

TEST(KernelCache, LoadsNoMutatedFile) {
  const Folder folder;
  const KernelCache cache(folder.path());
  const std::string key = "sm_80\n11.8\nextern \"C\" __global__ void fetch() {}\n";
  const std::string image = "\177ELF: an image\n";
  cache.Keep(key, image);
  const std::string path = cache.PathOf(key);
  std::ifstream file(path, std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(file), {});
  constexpr uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  int mutated = 0;
  for (int turn = 0; turn < 5000; ++turn) {
    const std::string bytes = Mutated(whole, random);
    fs::remove(path);  // overwriting a file is slow on some file systems
    std::ofstream(path, std::ios::binary) << bytes;
    if (bytes == whole) {
      EXPECT_EQ(cache.Find(key), image);
    } else {
      ASSERT_FALSE(cache.Find(key).has_value()) << "turn " << turn;
      ++mutated;
    }
  }
  EXPECT_GT(mutated, 4900);
}

TEST(KernelCache, WorksWithoutAFolder) {
  for (const char* place : {"", "/proc/no/such/folder"}) {
    const KernelCache cache{place};
    cache.Keep("key", "image");
    EXPECT_FALSE(cache.Find("key").has_value());
  }
}

// --- Files of other users ---------------------------------------------------------

std::string Kept(const std::string& folder, const std::string& key) {
  KernelCache(folder).Keep(key, "image");
  return KernelCache(folder).PathOf(key);
}

TEST(KernelCache, UsesNoFolderThatOthersCanWriteTo) {
  for (const fs::perms others : {fs::perms::group_write, fs::perms::others_write}) {
    const Folder folder;
    const KernelCache cache(folder.path());
    cache.Keep("key", "image");
    ASSERT_TRUE(cache.Find("key").has_value());
    fs::permissions(folder.path(), others, fs::perm_options::add);
    EXPECT_FALSE(cache.Find("key").has_value());
    cache.Keep("other", "image");
    EXPECT_FALSE(fs::exists(cache.PathOf("other")));
    fs::permissions(folder.path(), fs::perms::owner_all);
    EXPECT_TRUE(cache.Find("key").has_value());
  }
}

TEST(KernelCache, UsesNoFolderOfSomebodyElse) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  const Folder folder;
  const KernelCache cache(folder.path());
  const std::string path = Kept(folder.path(), "key");
  ASSERT_EQ(chown(path.c_str(), 1, 1), 0);
  EXPECT_FALSE(cache.Find("key").has_value()) << "the file";
  ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
  EXPECT_TRUE(cache.Find("key").has_value());
  ASSERT_EQ(chown(folder.path().c_str(), 1, 1), 0);
  EXPECT_FALSE(cache.Find("key").has_value()) << "the folder";
  cache.Keep("other", "image");
  EXPECT_FALSE(fs::exists(cache.PathOf("other")));
}

TEST(KernelCache, UsesNoFileThatOthersCanWriteTo) {
  const Folder folder;
  const KernelCache cache(folder.path());
  const std::string path = Kept(folder.path(), "key");
  fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
  EXPECT_FALSE(cache.Find("key").has_value());
}

TEST(KernelCache, FollowsNoLinks) {
  const Folder folder;
  const Folder elsewhere;
  const std::string path = Kept(elsewhere.path(), "key");
  const KernelCache cache(folder.path());
  fs::create_symlink(path, cache.PathOf("key"));
  EXPECT_FALSE(cache.Find("key").has_value()) << "a file";
  fs::create_directory_symlink(elsewhere.path(), folder.path() + "/link");
  const KernelCache linked(folder.path() + "/link");
  EXPECT_FALSE(linked.Find("key").has_value()) << "the folder";
  linked.Keep("other", "image");
  EXPECT_FALSE(fs::exists(linked.PathOf("other")));
}

TEST(KernelCache, WritesToNoFileThatWaitsForIt) {
  const Folder folder;
  const KernelCache cache(folder.path());
  const std::string target = folder.path() + "/target";
  // The names under which the next files are written: the process and a number.
  for (int number = 1; number < 64; ++number) {
    fs::create_symlink(target, cache.PathOf("key") + "." + std::to_string(getpid()) +
                                   "." + std::to_string(number));
  }
  cache.Keep("key", "image");
  EXPECT_FALSE(fs::exists(target));
}

TEST(KernelCache, AnswersAtOnceWhereAPipeWaits) {
  const Folder folder;
  const KernelCache cache(folder.path());
  ASSERT_EQ(mkfifo(cache.PathOf("key").c_str(), 0600), 0);
  EXPECT_FALSE(cache.Find("key").has_value());
}

TEST(KernelCache, MakesAFolderForTheUserAlone) {
  const Folder folder;
  const mode_t before = umask(0);
  const std::string path = Kept(folder.path() + "/new", "key");
  umask(before);
  EXPECT_EQ(fs::status(folder.path() + "/new").permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(path).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

// --- The limit --------------------------------------------------------------------

// Every file takes 1000 bytes, and 16 of them fit. A process scans the folder again after
// adding one file, and leaves 15.
constexpr int64_t kLimit = 16000;

void KeepOne(const KernelCache& cache, const std::string& key) {
  const size_t head = std::string("tofu kernel 2 2 900 \n\n").size() + kDigits.size();
  cache.Keep(key, std::string(1000 - head - key.size(), 'x'));
}

std::string Key(int number) { return std::to_string(10 + number); }

// Makes `key` look as if it was last used `minutes` ago.
void SetAge(const KernelCache& cache, const std::string& key, int minutes) {
  fs::last_write_time(cache.PathOf(key),
                      fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
}

int64_t BytesIn(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(folder)) {
    bytes += static_cast<int64_t>(fs::file_size(file.path()));
  }
  return bytes;
}

std::set<std::string> KeysIn(const KernelCache& cache, int num_keys) {
  std::set<std::string> keys;
  for (int i = 0; i < num_keys; ++i) {
    if (fs::exists(cache.PathOf(Key(i)))) keys.insert(Key(i));
  }
  return keys;
}

TEST(KernelCache, ForgetsWhatWasUsedLongestAgo) {
  const Folder folder;
  const KernelCache cache(folder.path(), kLimit);
  for (int i = 0; i < 16; ++i) {
    KeepOne(cache, Key(i));
    SetAge(cache, Key(i), 100 - i);
  }
  EXPECT_EQ(BytesIn(folder.path()), kLimit);
  EXPECT_TRUE(cache.Find(Key(0)).has_value());  // a use
  KeepOne(cache, Key(16));
  KeepOne(cache, Key(17));
  EXPECT_EQ(BytesIn(folder.path()), kLimit);
  const std::set<std::string> kept = KeysIn(cache, 18);
  EXPECT_EQ(kept.size(), 16u);
  EXPECT_EQ(kept.count(Key(0)), 1u);
  EXPECT_EQ(kept.count(Key(1)), 0u);
  EXPECT_EQ(kept.count(Key(2)), 0u);
}

TEST(KernelCache, NeverExceedsItsLimit) {
  const Folder folder;
  for (int process = 0; process < 4; ++process) {
    const KernelCache cache(folder.path(), kLimit);
    for (int i = 0; i < 10; ++i) {
      KeepOne(cache, Key(10 * process + i));
      EXPECT_LE(BytesIn(folder.path()), kLimit) << "file " << 10 * process + i;
    }
  }
  EXPECT_GT(BytesIn(folder.path()), kLimit / 2);
}

TEST(KernelCache, BringsALargeOldFolderUnderTheLimit) {
  const Folder folder;
  const KernelCache before(folder.path(), 10 * kLimit);
  for (int i = 0; i < 60; ++i) KeepOne(before, Key(i));
  EXPECT_EQ(BytesIn(folder.path()), 60000);
  KeepOne(KernelCache(folder.path(), kLimit), Key(60));
  EXPECT_EQ(BytesIn(folder.path()), kLimit);
}

TEST(KernelCache, LeavesOtherFilesAndRemovesUnfinishedOnes) {
  const Folder folder;
  const KernelCache cache(folder.path(), kLimit);
  const std::string others[] = {folder.path() + "/notes", folder.path() + "/0.kernel",
                                folder.path() + "/" + kDigits + ".txt"};
  for (const std::string& path : others) std::ofstream(path) << std::string(20000, 'x');
  const std::string unfinished = cache.PathOf("key") + ".1.1";
  std::ofstream(unfinished) << std::string(20000, 'x');
  fs::create_directory(folder.path() + "/" + kDigits + ".kernel");
  KeepOne(cache, Key(0));
  EXPECT_TRUE(cache.Find(Key(0)).has_value());
  for (const std::string& path : others) EXPECT_TRUE(fs::exists(path)) << path;
  EXPECT_FALSE(fs::exists(unfinished));
}

TEST(KernelCache, DoesNotKeepWhatTakesTooMuch) {
  const Folder folder;
  const KernelCache cache(folder.path(), kLimit);
  KeepOne(cache, Key(0));
  cache.Keep("key", std::string(1001, 'x'));
  EXPECT_FALSE(cache.Find("key").has_value());
  EXPECT_TRUE(cache.Find(Key(0)).has_value());
}

// Keeps and finds files in a folder shared with other threads. Returns false if it finds
// a wrong one.
bool IsUndisturbed(const std::string& folder, int first) {
  const KernelCache cache(folder, kLimit);
  for (int i = 0; i < 200; ++i) {
    const std::string key = Key((first + i) % 40);
    const std::string image = key + std::string(900, 'x');
    const auto found = cache.Find(key);
    if (found.has_value() && *found != image) return false;
    cache.Keep(key, image);
  }
  return true;
}

TEST(KernelCache, IsSharedByThreads) {
  const Folder folder;
  std::vector<std::thread> threads;
  std::vector<char> undisturbed(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back(
        [&, t] { undisturbed[t] = IsUndisturbed(folder.path(), 7 * t) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(undisturbed, std::vector<char>(4, 1));
  KeepOne(KernelCache(folder.path(), kLimit), "99");
  EXPECT_LE(BytesIn(folder.path()), kLimit);
}

TEST(KernelCache, IsSharedByProcesses) {
  const Folder folder;
  std::vector<pid_t> children;
  for (int c = 0; c < 3; ++c) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(IsUndisturbed(folder.path(), 11 * c) ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  KeepOne(KernelCache(folder.path(), kLimit), "99");
  EXPECT_LE(BytesIn(folder.path()), kLimit);
}

}  // namespace
}  // namespace tofu
