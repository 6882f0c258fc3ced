#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/multifetch.h"

namespace tofu {
namespace {

std::string Extents3(int64_t a, int64_t b, int64_t c) {
  return std::to_string(a) + "," + std::to_string(b) + "," + std::to_string(c);
}

// Two blocks of rows, each of columns of three tiles and a column of fill between
// them: more rows than are copied before the next tile's turn.
TEST(MultiFetchBands, TilesSideBySideAreCopiedRowByRow) {
  constexpr int64_t kBlocks = 2;
  constexpr int64_t kRows = 100;
  constexpr int64_t kWidth = 101;  // 34 + 33 + 1 of fill + 33
  const std::vector<int64_t> begins = {0, 34, 68};
  const std::vector<int64_t> widths = {34, 33, 33};
  std::string text = "dtype=0 shape=" + Extents3(kBlocks, kRows, kWidth) + " sources=";
  std::string pieces;
  std::vector<std::vector<float>> tiles;
  for (size_t t = 0; t < begins.size(); ++t) {
    const std::string size = Extents3(kBlocks, kRows, widths[t]);
    text += size + ";";
    pieces +=
        std::to_string(t) + "@0,0,0>0,0," + std::to_string(begins[t]) + ":" + size + ";";
    tiles.emplace_back(kBlocks * kRows * widths[t]);
    std::iota(tiles.back().begin(), tiles.back().end(),
              100000.0F * static_cast<float>(t));
  }
  pieces += "-@>0,0,67:" + Extents3(kBlocks, kRows, 1);
  const MultiFetch fetch(ReadSpec(text + " pieces=" + pieces + " fill=-1"));

  std::vector<const void*> sources;
  for (const std::vector<float>& tile : tiles) sources.push_back(tile.data());
  std::vector<float> region(kBlocks * kRows * kWidth, -2.0F);
  fetch.Run(sources.data(), region.data());

  for (int64_t row = 0; row < kBlocks * kRows; ++row) {
    EXPECT_EQ(region[row * kWidth + 67], -1.0F);
    for (size_t t = 0; t < begins.size(); ++t) {
      for (int64_t i = 0; i < widths[t]; ++i) {
        ASSERT_EQ(region[row * kWidth + begins[t] + i], tiles[t][row * widths[t] + i])
            << "row " << row << ", tile " << t;
      }
    }
  }
}

// The copy is large enough to bypass the caches; its source has gaps between rows.
TEST(MultiFetchBands, LargeSlicesAreCopiedWhole) {
  constexpr int64_t kRows = 2100;
  constexpr int64_t kWidth = 1056;
  for (int64_t skipped : {8, 1056}) {
    const std::string from =
        std::to_string(kRows) + "," + std::to_string(kWidth + skipped);
    const std::string size = std::to_string(kRows) + "," + std::to_string(kWidth);
    const MultiFetch fetch(ReadSpec("dtype=0 shape=" + size + " sources=" + from +
                                    "; pieces=0@0," + std::to_string(skipped) +
                                    ">0,0:" + size));
    std::vector<float> source(kRows * (kWidth + skipped));
    std::iota(source.begin(), source.end(), 0.0F);
    std::vector<float> raw(kRows * kWidth + 9, -1.0F);
    // Aligned for writes of 32 bytes that bypass the caches, and not aligned.
    for (int64_t shift : {0, 1}) {
      float* region = raw.data();
      while (reinterpret_cast<uintptr_t>(region) % 32 != 0) ++region;
      region += shift;
      const void* sources[] = {source.data()};
      fetch.Run(sources, region);
      for (int64_t i = 0; i < kRows * kWidth; ++i) {
        const int64_t row = i / kWidth;
        ASSERT_EQ(region[i], source[row * (kWidth + skipped) + skipped + i % kWidth])
            << i;
      }
    }
  }
}

// A region of bytes: `rows` rows of adjacent tiles of these widths, without the first
// `skipped` columns of each tile.
struct Joined {
  int64_t rows;
  std::vector<int64_t> widths;
  int64_t skipped;
};

MultiFetchSpec SpecOf(const Joined& joined) {
  MultiFetchSpec spec;
  spec.dtype = 5;  // int8
  spec.shape = {joined.rows, 0};
  for (size_t t = 0; t < joined.widths.size(); ++t) {
    spec.sources.push_back({joined.rows, joined.skipped + joined.widths[t]});
    spec.pieces.push_back({static_cast<int>(t),
                           {0, joined.skipped},
                           {0, spec.shape[1]},
                           {joined.rows, joined.widths[t]},
                           0});
    spec.shape[1] += joined.widths[t];
  }
  return spec;
}

// Bytes that differ between tiles and do not repeat with the distance of rows.
std::vector<char> BytesOf(int64_t count, size_t tile) {
  std::vector<char> bytes(count);
  for (int64_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<char>((i * 2654435761 + static_cast<int64_t>(tile)) >> 7);
  }
  return bytes;
}

void ExpectJoinedAt(const Joined& joined, int64_t shift) {
  const MultiFetchSpec spec = SpecOf(joined);
  std::vector<std::vector<char>> tiles;
  std::vector<const void*> sources;
  for (size_t t = 0; t < joined.widths.size(); ++t) {
    tiles.push_back(BytesOf(joined.rows * spec.sources[t][1], t));
  }
  for (const std::vector<char>& tile : tiles) sources.push_back(tile.data());
  std::vector<char> expected;
  for (int64_t row = 0; row < joined.rows; ++row) {
    for (size_t t = 0; t < tiles.size(); ++t) {
      const auto end = tiles[t].begin() + (row + 1) * spec.sources[t][1];
      expected.insert(expected.end(), end - joined.widths[t], end);
    }
  }
  constexpr int64_t kGuard = 64;
  std::vector<char> raw(expected.size() + 3 * kGuard, 'x');
  char* region = raw.data() + kGuard;
  while (reinterpret_cast<uintptr_t>(region) % kGuard != 0) ++region;
  region += shift;
  MultiFetch(spec).Run(sources.data(), region);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), region));
  EXPECT_EQ(region[-1], 'x');
  EXPECT_EQ(region[expected.size()], 'x');
}

// Copies of 768 KiB and more prefetch. The cases are slices and adjacent tiles, with rows
// shorter and longer than the distance of prefetching that are no multiple of a vector.
TEST(MultiFetchBands, LooksAheadInCopiesThatAreFar) {
  for (int64_t width : {128, 200, 1000, 1024, 5001}) {
    const int64_t rows = (1 << 20) / width;
    for (int64_t shift : {0, 1, 32}) {
      for (int64_t skipped : {0, 64, 333}) {
        SCOPED_TRACE(std::to_string(width) + " bytes after " + std::to_string(skipped) +
                     ", at " + std::to_string(shift));
        ExpectJoinedAt({rows, {width}, skipped}, shift);
        ExpectJoinedAt({rows / 2, {width, width + 7}, skipped}, shift);
      }
    }
  }
}

// Short rows bypass the caches if they fill whole lines.
TEST(MultiFetchBands, LargeCopiesOfShortRows) {
  for (int64_t width : {32, 64, 96}) {
    const int64_t rows = (9 << 20) / width;
    for (int64_t shift : {0, 8, 32}) {
      SCOPED_TRACE(std::to_string(width) + " bytes at " + std::to_string(shift));
      ExpectJoinedAt({rows, {width}, width}, shift);
      ExpectJoinedAt({rows, {width, width}, 0}, shift);
    }
  }
}

}  // namespace
}  // namespace tofu
