#include "graph/division.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "graph/box.h"

namespace tofu {
namespace {

// The sizes of all pieces of a range that the steps cut one after the other.
std::vector<int64_t> Sizes(int64_t extent, const std::vector<int>& parts,
                           const TileShares& shares) {
  int workers = 1;
  for (int count : parts) workers *= count;
  std::vector<int64_t> sizes;
  int64_t end = 0;
  const std::vector<int> cuts(parts.size(), 0);
  for (int worker = 0; worker < workers; ++worker) {
    const Box tile =
        TileBox({extent}, cuts, Division(parts, shares), WorkerDigits(worker, parts));
    EXPECT_EQ(tile.begin[0], end) << "pieces follow each other";
    end = tile.end[0];
    sizes.push_back(tile.Volume());
  }
  EXPECT_EQ(end, extent);
  return sizes;
}

using Numbers = std::vector<int64_t>;

TEST(Division, PiecesAreAsNearToTheirSharesAsElementsAllow) {
  EXPECT_EQ(Sizes(16, {2}, {{{3, 1}}}), (Numbers{12, 4}));
  EXPECT_EQ(Sizes(10, {2}, {{{3, 1}}}), (Numbers{8, 2}));
  EXPECT_EQ(Sizes(10, {3}, {{{1, 2, 2}}}), (Numbers{2, 4, 4}));
  EXPECT_EQ(Sizes(32, {2, 2}, {{{3, 1}, {}}}), (Numbers{12, 12, 4, 4}));
  EXPECT_EQ(Sizes(64, {2, 2}, {{{}, {1, 3}}}), (Numbers{8, 24, 8, 24}));
}

TEST(Division, WhatEqualPiecesAllowSharesAllow) {
  EXPECT_EQ(Sizes(8, {2, 2, 2}, {{{9, 1}, {}, {}}}), (Numbers(8, 1)));
  EXPECT_EQ(Sizes(2, {2}, {{{1000, 1}}}), (Numbers{1, 1}));
  std::mt19937 random(5);
  for (int turn = 0; turn < 2000; ++turn) {
    std::vector<int> parts;
    TileShares shares;
    int workers = 1;
    while (static_cast<int>(parts.size()) < 1 + turn % 3) {
      parts.push_back(2 + static_cast<int>(random() % 4));
      workers *= parts.back();
      std::vector<int>& step = shares.of_steps.emplace_back();
      for (int part = 0; part < parts.back(); ++part) {
        step.push_back(1 + static_cast<int>(random() % 30));
      }
    }
    shares.multiple = 1 + static_cast<int>(random() % 9);
    const int64_t extent = workers + static_cast<int64_t>(random() % 400);
    for (int64_t size : Sizes(extent, parts, shares)) ASSERT_GE(size, 1) << extent;
  }
}

TEST(Division, BoundsFallOnMultiplesWhereNoPieceGrowsByMuch) {
  TileShares shares;
  shares.multiple = 8;
  EXPECT_EQ(Sizes(1000, {2}, shares), (Numbers{504, 496}));
  EXPECT_EQ(Sizes(50257, {8}, shares),
            (Numbers{6288, 6288, 6288, 6280, 6280, 6280, 6280, 6273}));
  // 176 of 1024 would be 3% more than 171.
  EXPECT_EQ(Sizes(1024, {6}, shares), (Numbers{171, 171, 171, 171, 170, 170}));
  EXPECT_EQ(Sizes(250, {2}, shares), (Numbers{125, 125}));
  EXPECT_EQ(Sizes(256, {2}, shares), (Numbers{128, 128}));
  shares.of_steps = {{3, 1}};
  EXPECT_EQ(Sizes(4000, {2}, shares), (Numbers{3000, 1000}));
  EXPECT_EQ(Sizes(4010, {2}, shares), (Numbers{3008, 1002}));
}

TEST(Division, EqualSharesAreNone) {
  EXPECT_EQ(Normal({{{2, 2}, {7, 7, 7}}}), TileShares());
  EXPECT_EQ(Normal({{{2, 2}, {1, 2}}}), (TileShares{{{}, {1, 2}}}));
}

}  // namespace
}  // namespace tofu
