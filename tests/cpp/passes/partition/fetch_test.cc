#include "passes/partition/fetch.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "passes/partition/emit_plain.h"
#include "support/interpreter.h"

namespace tofu {
namespace {

// The tiles of a tensor as sources, in the order in which `worker` prefers them.
std::vector<FetchSource> Tiles(const Shape& shape, const std::vector<int>& cuts,
                               const std::vector<int>& parts, int worker) {
  std::vector<FetchSource> sources;
  const auto preference = FetchPreference(parts);
  for (int w : preference[worker]) {
    sources.push_back({w, TileBox(shape, cuts, parts, WorkerDigits(w, parts))});
  }
  return sources;
}

FetchSpec FetchTiles(int worker, const Box& region, const Shape& shape,
                     const std::vector<int>& cuts, const std::vector<int>& parts) {
  return PlanFetch(worker, region, WholeBox(shape), Tiles(shape, cuts, parts, worker));
}

std::vector<int> SourcesOf(const FetchSpec& spec) {
  std::vector<int> sources;
  for (const FetchPiece& piece : spec.pieces) sources.push_back(piece.source);
  return sources;
}

TEST(FetchPreference, PutsTheWorkerItselfThenNearOnesThenLowNumbers) {
  const auto order = FetchPreference({2, 3});
  EXPECT_EQ(order[4], (std::vector<int>{4, 3, 5, 0, 1, 2}));
  EXPECT_EQ(FetchPreference({}), (std::vector<std::vector<int>>{{0}}));
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
  // Worker 1 holds a replica of all that worker 0 lacks and more: one piece
  // from each, although tile boundaries of others lie between.
  const std::vector<FetchSource> sources = {
      {0, {{0}, {3}}}, {1, {{0}, {8}}}, {2, {{4}, {6}}}};
  const FetchSpec spec = PlanFetch(0, {{0}, {8}}, {{0}, {8}}, sources);
  EXPECT_EQ(SourcesOf(spec), (std::vector<int>{0, 1}));
  EXPECT_EQ(spec.pieces[1].to, (Box{{3}, {8}}));
}

TEST(PlanFetch, ReadsReplicasFromTheNearestHolder) {
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
      1, tile, {{{0, {{0, 0}, {4, 4}}}}, {{1, {{0, 0}, {4, 4}}}}}, Reducer::kMax);
  ASSERT_EQ(spec.num_terms, 2);
  EXPECT_EQ(SourcesOf(spec), (std::vector<int>{0, 1}));
  EXPECT_EQ(spec.pieces[1].term, 1);
  EXPECT_EQ(FetchedElements(spec), 8);
}

// Every element of a random region is written once, from a source that has it,
// and the pieces are as many as the tiles that the region meets.
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
    const auto sources = Tiles(shape, cuts, parts, worker);
    const FetchSpec spec = PlanFetch(worker, region, WholeBox(shape), sources);
    Array seen(region.Extents());
    std::set<std::vector<int64_t>> met;
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

// --- Plain form --------------------------------------------------------------------

class EmitPlainTest : public testing::Test {
 protected:
  // A variable on `worker`.
  NodeEntry Source(int worker, const Shape& shape, int dtype = 0) {
    Node node;
    node.name = "tile" + std::to_string(worker);
    return {builder_.Add(node, worker, {shape}, {dtype}), 0};
  }

  const Node& NodeOf(NodeEntry entry) { return builder_.graph().nodes[entry.node]; }

  GraphBuilder builder_;
};

TEST_F(EmitPlainTest, AddsNothingForAWholeTileAndSlicesOnTheOwner) {
  const std::vector<NodeEntry> tiles = {Source(0, {2}), Source(1, {2})};
  const NodeEntry whole =
      EmitPlain(FetchTiles(0, {{2}, {4}}, {4}, {0}, {2}), tiles, 0, "n@0/in0", &builder_);
  EXPECT_EQ(whole.node, tiles[1].node);
  const NodeEntry part =
      EmitPlain(FetchTiles(0, {{3}, {4}}, {4}, {0}, {2}), tiles, 0, "n@0/in0", &builder_);
  EXPECT_EQ(NodeOf(part).op, "slice_axis");
  EXPECT_EQ(NodeOf(part).name, "n@0/in0/slice0");
  EXPECT_EQ(
      NodeOf(part).attrs,
      (std::map<std::string, std::string>{
          {"__ctx_group__", "worker1"}, {"axis", "0"}, {"begin", "1"}, {"end", "2"}}));
}

TEST_F(EmitPlainTest, SlicesFloat32OneDimensionAfterTheOther) {
  const NodeEntry tile = Source(0, {4, 6});
  const Box box = {{1, 2}, {3, 6}};
  const NodeEntry part = builder_.Slice("part", 0, tile, box);
  EXPECT_EQ(builder_.shape(part), (Shape{2, 4}));
  EXPECT_EQ(NodeOf(part).attrs.at("axis"), "1");
  const NodeEntry rows = NodeOf(part).inputs[0];
  EXPECT_EQ(NodeOf(rows).op, "slice_axis");
  EXPECT_EQ(builder_.shape(rows), (Shape{2, 6}));
  EXPECT_EQ(NodeOf(rows).inputs[0].node, tile.node);
}

TEST_F(EmitPlainTest, ConcatenatesTheLastDimensionFirst) {
  std::vector<NodeEntry> tiles;
  for (int w = 0; w < 4; ++w) tiles.push_back(Source(w, {2, 3}));
  const NodeEntry whole = EmitPlain(
      FetchTiles(1, WholeBox({4, 6}), {4, 6}, {0, 1}, {2, 2}), tiles, 0, "n", &builder_);
  EXPECT_EQ(NodeOf(whole).attrs.at("dim"), "0");
  EXPECT_EQ(NodeOf(whole).attrs.at("__ctx_group__"), "worker1");
  ASSERT_EQ(NodeOf(whole).inputs.size(), 2u);
  EXPECT_EQ(NodeOf(NodeOf(whole).inputs[0]).attrs.at("dim"), "1");
  EXPECT_EQ(builder_.shape(whole), (Shape{4, 6}));
}

TEST_F(EmitPlainTest, JoinsBooleansAsBytes) {
  constexpr int kBool = 7;
  const std::vector<NodeEntry> tiles = {Source(0, {2}, kBool), Source(1, {2}, kBool)};
  const NodeEntry whole =
      EmitPlain(FetchTiles(0, {{0}, {4}}, {4}, {0}, {2}), tiles, kBool, "n", &builder_);
  EXPECT_EQ(NodeOf(whole).op, "Cast");
  EXPECT_EQ(builder_.dtype(whole), kBool);
  EXPECT_EQ(builder_.dtype(NodeOf(whole).inputs[0]), 3);
}

TEST_F(EmitPlainTest, FillsInfinityByFullAndZeroByZeros) {
  const std::vector<NodeEntry> tiles = {Source(0, {2}, 1), Source(1, {2}, 1)};
  FetchSpec spec = FetchTiles(0, {{-1}, {2}}, {4}, {0}, {2});
  spec.fill = "-inf";
  const NodeEntry filled = EmitPlain(spec, tiles, 1, "n", &builder_);
  const Node& fill = NodeOf(NodeOf(filled).inputs[0]);
  EXPECT_EQ(fill.op, "_full");
  EXPECT_EQ(fill.attrs.at("value"), "-inf");
  EXPECT_EQ(fill.attrs.at("dtype"), "float64");
  EXPECT_EQ(fill.attrs.at("shape"), "(1,)");
  spec.fill = "0";
  const NodeEntry zeros = EmitPlain(spec, tiles, 1, "n", &builder_);
  EXPECT_EQ(NodeOf(NodeOf(zeros).inputs[0]).op, "_zeros");
}

TEST_F(EmitPlainTest, ReducesByAddNOrAChain) {
  const std::vector<NodeEntry> parts = {Source(0, {2}), Source(1, {2}), Source(2, {2})};
  std::vector<std::vector<FetchSource>> terms;
  for (int w = 0; w < 3; ++w) terms.push_back({{w, {{0}, {2}}}});
  const NodeEntry sum = EmitPlain(PlanReduction(0, {{0}, {2}}, terms, Reducer::kSum),
                                  parts, 0, "n", &builder_);
  EXPECT_EQ(NodeOf(sum).op, "add_n");
  EXPECT_EQ(NodeOf(sum).inputs.size(), 3u);
  const std::map<Reducer, std::string> chains = {{Reducer::kMax, "_maximum"},
                                                 {Reducer::kMin, "_minimum"},
                                                 {Reducer::kProd, "elemwise_mul"}};
  for (const auto& [reduce, op] : chains) {
    const NodeEntry last =
        EmitPlain(PlanReduction(0, {{0}, {2}}, terms, reduce), parts, 0, "m", &builder_);
    EXPECT_EQ(NodeOf(last).op, op);
    EXPECT_EQ(NodeOf(NodeOf(last).inputs[0]).op, op);
  }
}

}  // namespace
}  // namespace tofu
