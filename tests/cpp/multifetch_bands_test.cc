#include <gtest/gtest.h>

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
  std::string text =
      "dtype=0 shape=" + Extents3(kBlocks, kRows, kWidth) + " remote=0 sources=";
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

// So large that it goes past the caches, from a source with gaps between its rows.
TEST(MultiFetchBands, LargeSlicesAreCopiedWhole) {
  constexpr int64_t kRows = 2100;
  constexpr int64_t kWidth = 1056;
  for (int64_t skipped : {8, 1056}) {
    const std::string from =
        std::to_string(kRows) + "," + std::to_string(kWidth + skipped);
    const std::string size = std::to_string(kRows) + "," + std::to_string(kWidth);
    const MultiFetch fetch(ReadSpec("dtype=0 shape=" + size +
                                    " remote=0 sources=" + from + "; pieces=0@0," +
                                    std::to_string(skipped) + ">0,0:" + size));
    std::vector<float> source(kRows * (kWidth + skipped));
    std::iota(source.begin(), source.end(), 0.0F);
    std::vector<float> raw(kRows * kWidth + 9, -1.0F);
    // Where a vector of 32 bytes may be written past the caches, and where not.
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

}  // namespace
}  // namespace tofu
