#include "passes/partition/emit_multifetch.h"

#include <gtest/gtest.h>

#include <memory>

#include "fetch/crossing.h"
#include "fetch/fetch_nodes.h"
#include "fetch/multifetch_spec.h"

namespace tofu {
namespace {

constexpr int kFloat32 = 0;

// Worker w holds columns [2w, 2w + 2) of a 4 x 6 tensor.
class EmitMultiFetch : public testing::Test {
 protected:
  EmitMultiFetch() {
    for (int w = 0; w < 3; ++w) {
      Node node;
      node.name = "tile" + std::to_string(w);
      tiles_.push_back({builder_.Add(std::move(node), w, {{4, 2}}, {kFloat32}), 0});
      sources_.push_back({w, {{0, 2 * w}, {4, 2 * w + 2}}});
    }
  }

  NodeEntry Fetch(int worker, const Box& region) {
    return emitter_.Emit(PlanFetch(worker, region, kWhole, sources_), tiles_, kFloat32,
                         "f");
  }
  const Node& NodeOf(NodeEntry entry) { return builder_.graph().nodes[entry.node]; }
  MultiFetchSpec SpecOf(NodeEntry entry) {
    return ReadSpec(NodeOf(entry).attrs.at(kSpecAttr));
  }

  const Box kWhole = {{0, 0}, {4, 6}};
  GraphBuilder builder_;
  std::vector<NodeEntry> tiles_;
  std::vector<FetchSource> sources_;
  MultiFetchEmitter emitter_{Crossing::kPlainTiles, &builder_};
};

TEST_F(EmitMultiFetch, ReadsTilesOfOthersAndTheOwnTileLast) {
  const NodeEntry region = Fetch(0, kWhole);
  const Node& fetch = NodeOf(region);
  EXPECT_EQ(fetch.op, kMultiFetchOp);
  EXPECT_EQ(builder_.worker(region), 0);
  EXPECT_TRUE(IsDirect(fetch));
  ASSERT_EQ(fetch.inputs.size(), 3u);
  EXPECT_EQ(fetch.inputs[0].node, tiles_[1].node);
  EXPECT_EQ(fetch.inputs[1].node, tiles_[2].node);
  EXPECT_EQ(fetch.inputs[2].node, tiles_[0].node);
  const MultiFetchSpec spec = SpecOf(region);
  EXPECT_EQ(spec.pieces[0].source, 2) << "its own columns come first";
  EXPECT_EQ(spec.pieces[1].source, 0);
  EXPECT_EQ(spec.shape, (Shape{4, 6}));
  EXPECT_EQ(fetch.num_outputs, 1);
}

TEST_F(EmitMultiFetch, ARegionThatIsTheOwnTileAddsNothing) {
  EXPECT_EQ(Fetch(1, {{0, 2}, {4, 4}}).node, tiles_[1].node);
  EXPECT_EQ(builder_.graph().num_nodes(), 3);
  EXPECT_NE(Fetch(1, {{0, 2}, {3, 4}}).node, tiles_[1].node) << "a part of it";
}

TEST_F(EmitMultiFetch, ARegionOutsideTheTensorIsFilled) {
  FetchSpec spec = PlanFetch(1, {{4, 0}, {5, 6}}, kWhole, sources_);
  spec.fill = "-inf";
  const NodeEntry region = emitter_.Emit(spec, tiles_, kFloat32, "f");
  EXPECT_EQ(NodeOf(region).op, "_full");
  EXPECT_EQ(NodeOf(region).attrs.at("value"), "-inf");
  EXPECT_EQ(builder_.shape(region), (Shape{1, 6}));
}

TEST_F(EmitMultiFetch, ReductionsKeepTheirKindAndTheirTerms) {
  const Box tile = {{0, 0}, {4, 2}};
  for (const auto& [reducer, combine] : {std::pair(Reducer::kSum, Combine::kSum),
                                         {Reducer::kMax, Combine::kMax},
                                         {Reducer::kMin, Combine::kMin},
                                         {Reducer::kProd, Combine::kProd},
                                         {Reducer::kLogSumExp, Combine::kLogSumExp}}) {
    const NodeEntry region =
        emitter_.Emit(PlanReduction(0, tile, tile, {{{0, tile}}, {{1, tile}}}, reducer),
                      tiles_, kFloat32, "f");
    const MultiFetchSpec spec = SpecOf(region);
    EXPECT_EQ(spec.reduce, combine);
    EXPECT_EQ(spec.num_terms, 2);
    EXPECT_EQ(spec.pieces[1].term, 1);
    EXPECT_EQ(spec.pieces[1].source, 0) << "the other worker's";
  }
}

// Worker w holds columns [2w, 2w + 2) of a tensor of this shape, made by an operator.
class EmitDirectly : public testing::Test {
 protected:
  void Tiles(const Shape& tile, const std::string& op = "made", int outputs = 1) {
    for (int w = 0; w < 2; ++w) {
      Node node;
      node.name = "tile" + std::to_string(w);
      node.op = op;
      node.num_outputs = outputs;
      const std::vector<Shape> shapes(outputs, tile);
      const std::vector<int> dtypes(outputs, kFloat32);
      tiles_.push_back({builder_.Add(std::move(node), w, shapes, dtypes), 0});
    }
  }

  // Worker 0 reads both tiles, one above the other.
  const Node& Fetch(Crossing crossing) {
    const Box tile = WholeBox(builder_.shape(tiles_[0]));
    Box below = tile;
    below.begin[0] += tile.end[0];
    below.end[0] += tile.end[0];
    Box both = tile;
    both.end[0] = below.end[0];
    emitter_ = std::make_unique<MultiFetchEmitter>(crossing, &builder_);
    region_ = emitter_->Emit(PlanFetch(0, both, both, {{0, tile}, {1, below}}), tiles_,
                             kFloat32, "f");
    return builder_.graph().nodes[region_.node];
  }
  const Node& NodeOf(NodeEntry entry) { return builder_.graph().nodes[entry.node]; }

  GraphBuilder builder_;
  std::vector<NodeEntry> tiles_;
  std::unique_ptr<MultiFetchEmitter> emitter_;
  NodeEntry region_;
};

// Whether worker 0 reads worker 1's tile itself, not a copy that worker 1 makes.
class ReadInPlace : public EmitDirectly {
 protected:
  bool Read(const Shape& tile, const std::string& op, int output = 0,
            Crossing crossing = Crossing::kPlainTiles) {
    tiles_.clear();
    Tiles(tile, op, output + 1);
    for (NodeEntry& each : tiles_) each.index = output;
    const NodeEntry read = Fetch(crossing).inputs[0];
    return read.node == tiles_[1].node && read.index == output;
  }
};

TEST_F(ReadInPlace, AreTilesInThePlainLayout) {
  EXPECT_TRUE(Read({4, 2}, "Convolution")) << "oneDNN's layouts have three dimensions";
  EXPECT_TRUE(Read({4, 2}, "")) << "variables, too";
  EXPECT_TRUE(Read({4, 2, 3}, "made"));
  EXPECT_TRUE(Read({4, 2, 1, 513}, kMultiFetchOp));
  EXPECT_TRUE(Read({4, 2, 3}, "FullyConnected"));
  EXPECT_TRUE(Read({4, 2, 3, 3}, "_backward_Convolution", 1)) << "of a weight";
}

TEST_F(ReadInPlace, AreNoTilesThatMayBeInAnotherLayout) {
  EXPECT_FALSE(Read({4, 2, 3}, "")) << "in prediction, a weight";
  EXPECT_FALSE(Read({4, 2, 3}, "Convolution"));
  EXPECT_FALSE(Read({4, 2, 3}, "_backward_Convolution", 0));
  EXPECT_FALSE(Read({4, 2, 1, 1, 1}, "made")) << "views have four dimensions";
}

TEST_F(ReadInPlace, AreAllTilesOnGpus) {
  EXPECT_TRUE(Read({4, 2, 3}, "Convolution", 0, Crossing::kTiles));
  EXPECT_TRUE(Read({4, 2, 1, 1, 1}, "made", 0, Crossing::kTiles));
}

// An operator passes the layout of its input on.
TEST_F(ReadInPlace, AreNoTilesMadeFromOthersInAnotherLayout) {
  Tiles({4, 2, 3}, "Convolution");
  for (int w = 0; w < 2; ++w) {
    Node node;
    node.name = "relu" + std::to_string(w);
    node.op = "relu";
    node.inputs = {tiles_[w]};
    tiles_[w] = {builder_.Add(std::move(node), w, {{4, 2, 3}}, {kFloat32}), 0};
  }
  EXPECT_NE(Fetch(Crossing::kPlainTiles).inputs[0].node, tiles_[1].node);
}

TEST_F(EmitDirectly, TheOwnerCopiesATileAsAVector) {
  Tiles({4, 2, 512}, "Convolution");
  const Node fetch = Fetch(Crossing::kPlainTiles);
  const Node copy = NodeOf(fetch.inputs[0]);
  EXPECT_EQ(copy.op, kMultiFetchOp);
  EXPECT_EQ(copy.name, "tile1/plain");
  EXPECT_EQ(copy.inputs[0].node, tiles_[1].node);
  EXPECT_EQ(builder_.worker(fetch.inputs[0]), 1);
  EXPECT_EQ(builder_.shape(fetch.inputs[0]), (Shape{4096}));
  EXPECT_EQ(fetch.inputs[1].node, tiles_[0].node) << "its own needs no copy";
}

TEST_F(EmitDirectly, TheOwnerReadsTheCopyThatOthersNeed) {
  Tiles({4, 2, 512}, "Convolution");
  Fetch(Crossing::kPlainTiles);
  emitter_->Share(tiles_[0]);
  const Box tile = WholeBox(builder_.shape(tiles_[0]));
  Box part = tile;
  part.end[0] = 2;
  const NodeEntry region =
      emitter_->Emit(PlanFetch(0, part, tile, {{0, tile}}), tiles_, kFloat32, "f");
  EXPECT_EQ(NodeOf(NodeOf(region).inputs[0]).name, "tile0/plain");
}

TEST_F(EmitDirectly, ACopyServesTheFetchesOfOneRound) {
  Tiles({4, 2, 1}, "Convolution");
  const auto region = [&](int64_t rows) {
    const Box tile = WholeBox(builder_.shape(tiles_[0]));
    Box read = tile;
    read.end[0] = rows;
    return emitter_->Emit(PlanFetch(0, read, tile, {{1, tile}}), tiles_, kFloat32, "f");
  };
  Fetch(Crossing::kPlainTiles);
  const NodeEntry copy = NodeOf(region_).inputs[0];
  EXPECT_EQ(NodeOf(region(2)).inputs[0].node, copy.node);
  emitter_->BeginRound();
  EXPECT_NE(NodeOf(region(3)).inputs[0].node, copy.node);
}

}  // namespace
}  // namespace tofu
