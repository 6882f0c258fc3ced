#include "mxnet/safe_reader.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <numeric>

namespace tofu {
namespace {

// An unmapped address, hidden from compilers, which would refuse to read there.
const void* Nowhere() {
  volatile uintptr_t address = 64;
  return reinterpret_cast<const void*>(address);
}

// Two pages, of which the second one cannot be read.
class Pages {
 public:
  Pages()
      : size_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
        data_(static_cast<char*>(mmap(nullptr, 2 * size_, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    mprotect(data_ + size_, size_, PROT_NONE);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(data_, 2 * size_); }

  char* end() const { return data_ + size_; }  // of what can be read

 private:
  const size_t size_;
  char* const data_;
};

TEST(SafeReader, ReadsAnyNumberOfBytes) {
  const SafeReader reader;
  for (const size_t count : {0, 1, 4095, 4096, 4097, 100000}) {
    std::vector<unsigned char> from(count);
    std::iota(from.begin(), from.end(), static_cast<unsigned char>(1));
    std::vector<unsigned char> to(count + 1, 'x');
    EXPECT_TRUE(reader.Read(from.data(), to.data(), count)) << count;
    EXPECT_EQ(to.back(), 'x') << "one byte more than " << count;
    to.pop_back();
    EXPECT_EQ(to, from) << count;
  }
}

TEST(SafeReader, ABadAddressIsAnAnswerNotACrash) {
  const SafeReader reader;
  char byte = 'x';
  EXPECT_FALSE(reader.Read(Nowhere(), &byte, 1));
  const Pages pages;
  EXPECT_FALSE(reader.Read(pages.end(), &byte, 1));
  EXPECT_TRUE(reader.Read(pages.end() - 1, &byte, 1));
}

TEST(SafeReader, ReadsOnRightlyAfterARangeThatEndsInBadMemory) {
  const SafeReader reader;
  const Pages pages;
  pages.end()[-2] = 'a';
  pages.end()[-1] = 'b';
  char bytes[8] = {};
  EXPECT_FALSE(reader.Read(pages.end() - 2, bytes, 8));
  const char right[] = "right";
  ASSERT_TRUE(reader.Read(right, bytes, sizeof(right)));
  EXPECT_STREQ(bytes, "right");
}

TEST(SafeReader, ATextEndsWhereTheExpectedOneDoes) {
  const SafeReader reader;
  EXPECT_TRUE(reader.TextIs("FInferShape", "FInferShape"));
  EXPECT_FALSE(reader.TextIs("FInferShapes", "FInferShape"));
  EXPECT_FALSE(reader.TextIs("FInferShap", "FInferShape"));
  EXPECT_FALSE(reader.TextIs(Nowhere(), "FInferShape"));
}

}  // namespace
}  // namespace tofu
