#include "passes/partition/emit_plain.h"

#include <gtest/gtest.h>

#include "support/interpreter.h"

namespace tofu {
namespace {

constexpr int kFloat64 = 1;
constexpr int kBool = 7;

// Worker w holds row w of a 2 x 4 tensor, and so on: one variable a worker.
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
        ops.push_back(node.op + "@" + std::to_string(WorkerOf(node)));
      }
    }
    return ops;
  }
  static int WorkerOf(const Node& node) {
    return node.attrs.at(kContextAttr).back() - '0';
  }

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
      PlanReduction(1, row, {{{2, row}}, {{0, row}}, {{1, row}}}, Reducer::kSum);
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

}  // namespace
}  // namespace tofu
