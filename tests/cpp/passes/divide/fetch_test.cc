#include "passes/divide/fetch.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "support/interpreter.h"
#include "support/tiles.h"

namespace tofu {
namespace {

FetchSpec FetchTiles(int worker, const Box& region, const Shape& shape,
                     const std::vector<int>& cuts, const std::vector<int>& parts) {
  return PlanFetch(worker, region, WholeBox(shape),
                   TilesNear(worker, shape, cuts, parts));
}

std::vector<int> SourcesOf(const FetchSpec& spec) {
  std::vector<int> sources;
  for (const FetchPiece& piece : spec.pieces) sources.push_back(piece.source);
  return sources;
}

TEST(PlanFetch, TakesARegionInsideTheOwnTileInOnePiece) {
  const FetchSpec spec = FetchTiles(1, {{5, 1}, {7, 3}}, {8, 4}, {0}, {2});
  ASSERT_EQ(spec.pieces.size(), 1u);
  EXPECT_EQ(spec.pieces[0].source, 1);
  EXPECT_EQ(spec.pieces[0].from, (Box{{1, 1}, {3, 3}}));
  EXPECT_EQ(spec.pieces[0].to, (Box{{0, 0}, {2, 2}}));
  EXPECT_EQ(FetchedElements(spec), 0);
}

TEST(PlanFetch, CutsAGridOfTilesInRowMajorOrder) {
  const FetchSpec spec = FetchTiles(0, WholeBox({4, 6}), {4, 6}, {1, 0}, {2, 2});
  EXPECT_EQ(SourcesOf(spec), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(FetchedElements(spec), 18);
}

TEST(PlanFetch, MergesCellsOfOneSource) {
  // Worker 1 holds all elements that worker 0 lacks: one piece from each, although
  // boundaries of other tiles lie between.
  const std::vector<FetchSource> sources = {
      {0, {{0}, {3}}}, {1, {{0}, {8}}}, {2, {{4}, {6}}}};
  const FetchSpec spec = PlanFetch(0, {{0}, {8}}, {{0}, {8}}, sources);
  EXPECT_EQ(SourcesOf(spec), (std::vector<int>{0, 1}));
  EXPECT_EQ(spec.pieces[1].to, (Box{{3}, {8}}));
}

TEST(PlanFetch, ReadsReplicasFromTheFirstSource) {
  // Step 1 cuts, step 2 replicates: workers 2 and 3 hold the second half.
  EXPECT_EQ(SourcesOf(FetchTiles(0, {{4}, {8}}, {8}, {0, kReplicated}, {2, 2})),
            std::vector<int>{2});
  EXPECT_EQ(SourcesOf(FetchTiles(3, {{0}, {8}}, {8}, {0, kReplicated}, {2, 2})),
            (std::vector<int>{0, 3}));
}

TEST(PlanFetch, FillsWhatLiesOutsideTheTensor) {
  const FetchSpec spec = FetchTiles(0, {{-1, 0}, {5, 2}}, {4, 2}, {0}, {2});
  EXPECT_EQ(SourcesOf(spec), (std::vector<int>{kFill, 0, 1, kFill}));
  EXPECT_EQ(spec.pieces[3].to, (Box{{5, 0}, {6, 2}}));
  EXPECT_EQ(FetchedElements(spec), 4);
}

TEST(PlanFetch, OfAScalarIsOnePieceAndOfNothingNone) {
  EXPECT_EQ(FetchTiles(1, {}, {}, {kReplicated}, {2}).pieces.size(), 1u);
  EXPECT_TRUE(FetchTiles(1, {{3, 0}, {3, 4}}, {4, 4}, {0}, {2}).pieces.empty());
}

TEST(PlanFetch, NamesElementsWithoutASource) {
  try {
    PlanFetch(0, {{0}, {6}}, {{0}, {6}}, {{0, {{0}, {2}}}, {1, {{3}, {6}}}});
    FAIL() << "the gap [2:3) went unnoticed";
  } catch (const FetchGap& gap) {
    EXPECT_EQ(BoxText(gap.box()), "[2:3)");
  }
}

TEST(PlanReduction, TakesEveryTermWholeAndTheOwnOneInPlace) {
  const Box tile{{0, 0}, {2, 4}};
  const FetchSpec spec = PlanReduction(
      1, tile, tile, {{{0, {{0, 0}, {4, 4}}}}, {{1, {{0, 0}, {4, 4}}}}}, Reducer::kMax);
  ASSERT_EQ(spec.num_terms, 2);
  EXPECT_EQ(SourcesOf(spec), (std::vector<int>{0, 1}));
  EXPECT_EQ(spec.pieces[1].term, 1);
  EXPECT_EQ(FetchedElements(spec), 8);
}

// Every element of a random region is written once, from a source that has it, and each
// tile that the region meets gives one piece.
TEST(PlanFetch, CoversRandomRegionsOnceWithOnePieceATile) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  const auto below = [&](int n) { return static_cast<int>(random() % unsigned(n)); };
  const std::vector<int> parts = {2, 2, 2};
  const Shape shape = {8, 8, 4};
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", round " + std::to_string(round));
    const std::vector<int> cuts = {below(4) - 1, below(4) - 1, below(3) - 1};
    Box region;
    for (int64_t extent : shape) {
      region.begin.push_back(below(static_cast<int>(extent)));
      region.end.push_back(region.begin.back() + 1 +
                           below(static_cast<int>(extent - region.begin.back())));
    }
    const int worker = below(8);
    const auto sources = TilesNear(worker, shape, cuts, parts);
    const FetchSpec spec = PlanFetch(worker, region, WholeBox(shape), sources);
    Array seen(region.Extents());
    std::set<Shape> met;
    for (const FetchSource& source : sources) {
      if (Intersect(source.box, region).Volume() > 0) met.insert(source.box.begin);
    }
    for (const FetchPiece& piece : spec.pieces) {
      ASSERT_EQ(piece.from.Extents(), piece.to.Extents());
      const Box tile = TileBox(shape, cuts, parts, WorkerDigits(piece.source, parts));
      for (int d = 0; d < 3; ++d) {
        EXPECT_EQ(tile.begin[d] + piece.from.begin[d],
                  region.begin[d] + piece.to.begin[d]);
      }
      EXPECT_TRUE(Contains(WholeBox(tile.Extents()), piece.from));
      ForEachIndex(piece.to, [&](const Shape& at) { seen.at(at) += 1; });
    }
    EXPECT_EQ(seen.data, std::vector<double>(seen.data.size(), 1.0));
    EXPECT_EQ(spec.pieces.size(), met.size());
  }
}

}  // namespace
}  // namespace tofu
