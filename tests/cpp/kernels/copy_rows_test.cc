#include "kernels/copy_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace tofu {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache line
constexpr char kUntouched = 'x';

// Bytes between two guards, `shift` bytes after a multiple of 64.
class Memory {
 public:
  Memory(int64_t bytes, int64_t shift)
      : raw_(static_cast<size_t>(bytes + 4 * kLine), kUntouched), bytes_(bytes) {
    data_ = raw_.data() + kLine;
    while (reinterpret_cast<uintptr_t>(data_) % kLine != 0) ++data_;
    data_ += shift;
  }
  char* data() { return data_; }
  bool IsGuarded() const {
    return *(data_ - 1) == kUntouched && data_[bytes_] == kUntouched;
  }

 private:
  std::vector<char> raw_;
  int64_t bytes_;
  char* data_;
};

struct Copy {
  int64_t rows;
  int64_t row_bytes;
  int64_t to_stride;
  int64_t from_stride;
  int64_t shift;  // of the destination
};

void ExpectCopied(const Copy& copy, bool is_far) {
  SCOPED_TRACE(std::to_string(copy.rows) + " rows of " + std::to_string(copy.row_bytes) +
               " bytes, strides " + std::to_string(copy.to_stride) + " and " +
               std::to_string(copy.from_stride) + ", at " + std::to_string(copy.shift) +
               (is_far ? ", far" : ""));
  std::vector<char> from(static_cast<size_t>(copy.rows * copy.from_stride));
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<char>(i * 2654435761u >> 13);
  }
  Memory to((copy.rows - 1) * copy.to_stride + copy.row_bytes, copy.shift);
  CopyRows(to.data(), copy.to_stride, from.data(), copy.from_stride, copy.rows,
           copy.row_bytes, is_far);
  EXPECT_TRUE(to.IsGuarded());
  for (int64_t row = 0; row < copy.rows; ++row) {
    const char* const end = to.data() + row * copy.to_stride + copy.row_bytes;
    ASSERT_TRUE(std::equal(end - copy.row_bytes, end, &from[row * copy.from_stride]))
        << "row " << row;
    if (row + 1 == copy.rows) break;
    ASSERT_EQ(std::count(end, end + copy.to_stride - copy.row_bytes, kUntouched),
              copy.to_stride - copy.row_bytes)
        << "behind row " << row;
  }
}

TEST(CopyRows, CopyRowsOfAnyLengthAndNothingElse) {
  for (int64_t row_bytes = 1; row_bytes <= 300; ++row_bytes) {
    for (bool is_far : {false, true}) {
      ExpectCopied({5, row_bytes, row_bytes, row_bytes, 0}, is_far);
      ExpectCopied({5, row_bytes, row_bytes + 3, row_bytes + 7, 1}, is_far);
    }
  }
  for (int64_t row_bytes : {2047, 2048, 2049, 4000, 32 << 10, (32 << 10) + 1, 40000}) {
    ExpectCopied({3, row_bytes, row_bytes + 5, row_bytes + 1, 1}, false);
    ExpectCopied({3, row_bytes, row_bytes + 5, row_bytes + 1, 1}, true);
  }
}

// Copies that bypass the caches need every row to begin at a multiple of 32 bytes. With
// these strides the first row does, but the second does not.
TEST(CopyRows, LargeOnesCheckTheAlignmentOfEveryRow) {
  for (int64_t row_bytes : {32, 64, 128, 1024, 4096}) {
    const int64_t rows = (kStreamBytes + row_bytes - 1) / row_bytes;
    for (int64_t gap : {0, 8, 16, 32, 64}) {
      ExpectCopied({rows, row_bytes, row_bytes + gap, row_bytes, 0}, true);
      ExpectCopied({rows, row_bytes, row_bytes + gap, row_bytes + 8, 0}, true);
    }
    ExpectCopied({rows, row_bytes, row_bytes, row_bytes, 8}, true);
  }
  const int64_t unaligned = 1000;  // bytes of a row
  ExpectCopied({kStreamBytes / unaligned + 1, unaligned, 1024, unaligned, 0}, true);
}

TEST(FillRow, RepeatsAnElementOfAnySize) {
  const char value[] = "abcdefgh";
  for (int64_t bytes : {1, 2, 4, 8}) {
    Memory to(5 * bytes, 0);
    FillRow(to.data(), value, bytes, 5);
    EXPECT_TRUE(to.IsGuarded());
    for (int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(std::memcmp(to.data() + i * bytes, value, bytes), 0) << bytes;
    }
  }
}

}  // namespace
}  // namespace tofu
