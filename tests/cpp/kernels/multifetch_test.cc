#include "kernels/multifetch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "kernels/half.h"
#include "support/indices.h"
#include "support/random_fetch.h"

namespace tofu {
namespace {

// A one-term specification of float32 with one piece.
MultiFetchSpec OnePiece() {
  return ReadSpec("dtype=0 shape=2,2 sources=3,4; pieces=0@1,2>0,0:2,2");
}

TEST(MultiFetchCells, AreContiguousWhereAllArraysAre) {
  const auto cells =
      MakeCells(ReadSpec("dtype=0 shape=4,2,3 sources=2,2,3; "
                         "pieces=0@0,0,0>0,0,0:2,2,3;-@>2,0,0:2,2,3"));
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0].row, 12);
  EXPECT_TRUE(cells[0].loops.empty());
  EXPECT_EQ(cells[1].row, 12);
  EXPECT_EQ(cells[1].offset, 12);
}

TEST(MultiFetchCells, LoopOverRowsThatLieApart) {
  const auto cells = MakeCells(OnePiece());
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].row, 2);
  EXPECT_EQ(cells[0].terms[0].offset, 6);
  ASSERT_EQ(cells[0].loops.size(), 1u);
  EXPECT_EQ(cells[0].loops[0].count, 2);
  EXPECT_EQ(cells[0].loops[0].to_stride, 2);
  EXPECT_EQ(cells[0].loops[0].from_strides, (Extents{4}));
}

// --- Against a naive loop over elements --------------------------------------

class MultiFetchRandom : public testing::TestWithParam<int> {};

TEST_P(MultiFetchRandom, EqualsALoopOverElements) {
  const int dtype = GetParam();
  const int64_t bytes = ElementBytes(dtype);
  for (unsigned seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const MultiFetchSpec spec = RandomSpec(dtype, &random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + WriteSpec(spec));
    const std::vector<std::vector<char>> data = SourceData(spec);
    std::vector<const void*> addresses;
    for (const std::vector<char>& source : data) addresses.push_back(source.data());
    const size_t margin = 8;
    std::vector<char> region(Elements(spec.shape) * bytes + 2 * margin, 'x');
    MultiFetch(ReadSpec(WriteSpec(spec))).Run(addresses.data(), region.data() + margin);
    std::vector<char> expected = ExpectedRegion(spec);
    expected.insert(expected.begin(), margin, 'x');
    expected.insert(expected.end(), margin, 'x');
    ASSERT_EQ(region, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, MultiFetchRandom, testing::Range(0, 13),
                         [](const auto& suite) {
                           return "flag" + std::to_string(suite.param);
                         });

// Large copies use other code, which bypasses the caches.
TEST(MultiFetchLarge, CopiesRowsOfAnyLengthToAnyPlace) {
  for (const int64_t row : {33, 48, 256, 257, 1024, 3000}) {
    for (const int64_t offset : {0, 1, 8}) {
      const int64_t rows = (9 << 20) / row / 4;
      std::vector<float> tile(rows * row);
      for (size_t i = 0; i < tile.size(); ++i) tile[i] = static_cast<float>(i);
      MultiFetchSpec spec;
      spec.shape = {rows, row + offset};
      spec.sources = {{rows, row}};
      spec.pieces = {{kNoSource, {}, {0, 0}, {rows, offset}, 0},
                     {0, {0, 0}, {0, offset}, {rows, row}, 0}};
      std::vector<float> region(rows * (row + offset), -1);
      const void* addresses[] = {tile.data()};
      MultiFetch(spec).Run(addresses, region.data());
      int64_t wrong = 0;
      for (int64_t i = 0; i < static_cast<int64_t>(region.size()); ++i) {
        const int64_t column = i % (row + offset) - offset;
        const float right =
            column < 0 ? 0 : tile[static_cast<size_t>(i / (row + offset) * row + column)];
        wrong += region[static_cast<size_t>(i)] != right;
      }
      EXPECT_EQ(wrong, 0) << "rows of " << row << " at " << offset;
    }
  }
}

// --- Workers in parallel --------------------------------------------------------

// Two owners write their tiles, publish the round, and write the next round only when
// both readers have acknowledged; all threads pause at random. A sanitizer finds every
// access of the kernels that breaks this order.
TEST(MultiFetchThreads, ReadWhatOwnersPublishedAndNothingElse) {
  constexpr int kRounds = 1000;
  constexpr int kWidth = 64;
  const MultiFetch fetch(
      ReadSpec("dtype=0 shape=128 sources=64;64; pieces=0@0>0:64;1@0>64:64"));
  std::array<std::vector<float>, 2> tiles;
  tiles.fill(std::vector<float>(kWidth));
  std::array<std::atomic<int>, 2> published = {0, 0};
  std::array<std::atomic<int>, 2> acknowledged = {0, 0};
  const auto dawdle = [](std::mt19937* random) {
    if ((*random)() % 16 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 50));
    }
    std::this_thread::yield();
  };
  const auto own = [&](int worker) {
    std::mt19937 random(worker);
    for (int round = 1; round <= kRounds; ++round) {
      for (auto& reader : acknowledged) {
        while (reader.load(std::memory_order_acquire) < round - 1) dawdle(&random);
      }
      std::fill(tiles[worker].begin(), tiles[worker].end(), float(round + worker));
      dawdle(&random);
      published[worker].store(round, std::memory_order_release);
    }
  };
  std::atomic<int> wrong{0};
  const auto read = [&](int worker) {
    std::mt19937 random(worker + 2);
    std::vector<float> region(2 * kWidth);
    for (int round = 1; round <= kRounds; ++round) {
      for (auto& owner : published) {
        while (owner.load(std::memory_order_acquire) < round) dawdle(&random);
      }
      const void* addresses[] = {tiles[0].data(), tiles[1].data()};
      fetch.Run(addresses, region.data());
      dawdle(&random);
      acknowledged[worker].store(round, std::memory_order_release);
      for (int i = 0; i < 2 * kWidth; ++i)
        wrong += region[i] != float(round + i / kWidth);
    }
  };
  std::vector<std::thread> threads;
  for (int worker : {0, 1}) {
    threads.emplace_back(own, worker);
    threads.emplace_back(read, worker);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

// --- Numbers ---------------------------------------------------------------

TEST(MultiFetchReduce, SumsHalfPrecisionInFloat32) {
  // 2048 + 1 + 1 in half precision alone stays 2048.
  const MultiFetch fetch(
      ReadSpec("dtype=2 shape=1 sources=1;1;1; "
               "pieces=0@0>0:1#0;1@0>0:1#1;2@0>0:1#2 terms=3 reduce=sum"));
  const Float16 terms[] = {ToFloat16(2048), ToFloat16(1), ToFloat16(1)};
  const void* addresses[] = {&terms[0], &terms[1], &terms[2]};
  Float16 sum;
  fetch.Run(addresses, &sum);
  EXPECT_EQ(ToFloat(sum), 2050);
}

}  // namespace
}  // namespace tofu
