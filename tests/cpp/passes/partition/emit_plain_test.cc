#include "passes/partition/emit_plain.h"

#include <gtest/gtest.h>

#include "support/interpreter.h"
#include "support/tiles.h"

namespace tofu {
namespace {

constexpr int kFloat64 = 1;
constexpr int kBool = 7;

// One variable per worker: for example, worker w holds row w of a 2 x 4 tensor.
struct Workers {
  explicit Workers(const std::vector<Box>& held, int dtype = kFloat64) {
    for (size_t w = 0; w < held.size(); ++w) {
      Node node;
      node.name = "tile" + std::to_string(w);
      const Shape shape = held[w].Extents();
      tiles.push_back(
          {builder.Add(std::move(node), static_cast<int>(w), {shape}, {dtype}), 0});
      sources.push_back({static_cast<int>(w), held[w]});
      Array array(shape);
      ForEachIndex(held[w], [&](const Shape& at) {  // 10 * row + column
        Shape local = at;
        double value = 0;
        for (size_t d = 0; d < at.size(); ++d) {
          value = 10 * value + static_cast<double>(at[d]);
          local[d] -= held[w].begin[d];
        }
        array.at(local) = value;
      });
      values.emplace("tile" + std::to_string(w), array);
    }
  }

  std::vector<double> Run(const FetchSpec& spec, int dtype = kFloat64) {
    const NodeEntry result = EmitPlain(spec, tiles, dtype, "name", &builder);
    return RunGraph(builder.graph(), values)[builder.graph().entry_id(result)].data;
  }
  std::vector<std::string> Ops() {
    std::vector<std::string> ops;
    for (const Node& node : builder.graph().nodes) {
      if (!node.is_variable()) {
        ops.push_back(node.op.text() + "@" + std::to_string(WorkerOf(node)));
      }
    }
    return ops;
  }
  static int WorkerOf(const Node& node) { return node.group.text().back() - '0'; }

  GraphBuilder builder;
  std::vector<NodeEntry> tiles;
  std::vector<FetchSource> sources;
  std::map<std::string, Array> values;
};

const Box kWhole = {{0, 0}, {2, 4}};

TEST(EmitPlain, ARegionThatIsOneTileAddsNothing) {
  Workers workers({{{0, 0}, {1, 4}}, {{1, 0}, {2, 4}}});
  workers.Run(PlanFetch(0, {{0, 0}, {1, 4}}, kWhole, workers.sources));
  EXPECT_TRUE(workers.Ops().empty());
}

TEST(EmitPlain, PiecesAreSlicedAtTheirOwnerAndJoinedAtTheReader) {
  Workers workers({{{0, 0}, {1, 4}}, {{1, 0}, {2, 4}}});
  const FetchSpec spec = PlanFetch(0, {{0, 1}, {2, 3}}, kWhole, workers.sources);
  EXPECT_EQ(workers.Run(spec), (std::vector<double>{1, 2, 11, 12}));
  EXPECT_EQ(workers.Ops(), (std::vector<std::string>{"slice@0", "slice@1", "Concat@0"}));
}

// Four tiles in a square: columns are joined first, then rows.
TEST(EmitPlain, JoinsTheLastDimensionFirst) {
  Workers workers(
      {{{0, 0}, {1, 2}}, {{0, 2}, {1, 4}}, {{1, 0}, {2, 2}}, {{1, 2}, {2, 4}}});
  const FetchSpec spec = PlanFetch(3, kWhole, kWhole, workers.sources);
  EXPECT_EQ(workers.Run(spec), (std::vector<double>{0, 1, 2, 3, 10, 11, 12, 13}));
  EXPECT_EQ(workers.Ops(),
            (std::vector<std::string>{"Concat@3", "Concat@3", "Concat@3"}));
}

TEST(EmitPlain, WhatLiesOutsideIsFilled) {
  Workers workers({kWhole});
  FetchSpec spec = PlanFetch(0, {{-1, 3}, {1, 5}}, kWhole, workers.sources);
  spec.fill = "7";
  EXPECT_EQ(workers.Run(spec), (std::vector<double>{7, 7, 3, 7}));
}

TEST(EmitPlain, TermsAreReducedInTheirOrder) {
  const Box row = {{0}, {2}};
  Workers workers({row, row, row});
  const FetchSpec spec =
      PlanReduction(1, row, row, {{{2, row}}, {{0, row}}, {{1, row}}}, Reducer::kSum);
  EXPECT_EQ(workers.Run(spec), (std::vector<double>{0, 3}));
  const Node& sum = workers.builder.graph().nodes.back();
  EXPECT_EQ(sum.op, "add_n");
  EXPECT_EQ(Workers::WorkerOf(sum), 1);
  EXPECT_EQ(sum.inputs[0].node, workers.tiles[2].node);
  EXPECT_EQ(sum.inputs[2].node, workers.tiles[1].node);
}

TEST(EmitPlain, BooleansAreJoinedAsNumbers) {
  Workers workers({{{0}, {2}}, {{2}, {4}}}, kBool);
  const FetchSpec spec = PlanFetch(0, {{0}, {4}}, {{0}, {4}}, workers.sources);
  workers.Run(spec, kBool);
  EXPECT_EQ(workers.Ops(),
            (std::vector<std::string>{"Cast@0", "Cast@0", "Concat@0", "Cast@0"}));
  const Graph& graph = workers.builder.graph();
  EXPECT_EQ(graph.dtypes.back(), kBool);
  EXPECT_EQ(graph.nodes[2].attrs.at("dtype"), "uint8");
}

TEST(EmitPlain, AnEmptyRegionIsAnEmptyTensor) {
  Workers workers({kWhole});
  const FetchSpec spec = PlanFetch(0, {{1, 3}, {0, 4}}, kWhole, workers.sources);
  EXPECT_TRUE(workers.Run(spec).empty());
  EXPECT_EQ(workers.builder.graph().shapes.back(), (Shape{0, 1}));
}

// --- The nodes ---------------------------------------------------------------------

FetchSpec FetchTiles(int worker, const Box& region, const Shape& shape,
                     const std::vector<int>& cuts, const std::vector<int>& parts) {
  return PlanFetch(worker, region, WholeBox(shape),
                   TilesNear(worker, shape, cuts, parts));
}

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
  EXPECT_EQ(NodeOf(part).group, "worker1");
  EXPECT_EQ(NodeOf(part).attrs, (Attrs{{"axis", "0"}, {"begin", "1"}, {"end", "2"}}));
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
  EXPECT_EQ(NodeOf(whole).group, "worker1");
  ASSERT_EQ(NodeOf(whole).inputs.size(), 2u);
  EXPECT_EQ(NodeOf(NodeOf(whole).inputs[0]).attrs.at("dim"), "1");
  EXPECT_EQ(builder_.shape(whole), (Shape{4, 6}));
}

TEST_F(EmitPlainTest, JoinsBooleansAsBytes) {
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
  const NodeEntry sum =
      EmitPlain(PlanReduction(0, {{0}, {2}}, {{0}, {2}}, terms, Reducer::kSum), parts, 0,
                "n", &builder_);
  EXPECT_EQ(NodeOf(sum).op, "add_n");
  EXPECT_EQ(NodeOf(sum).inputs.size(), 3u);
  const std::map<Reducer, std::string> chains = {{Reducer::kMax, "_maximum"},
                                                 {Reducer::kMin, "_minimum"},
                                                 {Reducer::kProd, "elemwise_mul"}};
  for (const auto& [reduce, op] : chains) {
    const NodeEntry last =
        EmitPlain(PlanReduction(0, {{0}, {2}}, {{0}, {2}}, terms, reduce), parts, 0, "m",
                  &builder_);
    EXPECT_EQ(NodeOf(last).op, op);
    EXPECT_EQ(NodeOf(NodeOf(last).inputs[0]).op, op);
  }
}

}  // namespace
}  // namespace tofu
