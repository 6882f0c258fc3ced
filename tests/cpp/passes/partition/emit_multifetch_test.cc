#include "passes/partition/emit_multifetch.h"

#include <gtest/gtest.h>

#include <memory>

#include "fetch/crossing.h"
#include "fetch/fetch_nodes.h"
#include "fetch/multifetch_spec.h"
#include "passes/partition/retire.h"

namespace tofu {
namespace {

constexpr int kFloat32 = 0;
constexpr int kInt64 = 6;

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
  MultiFetchEmitter emitter_{Crossing::kCopies, &builder_};
};

TEST_F(EmitMultiFetch, ReadsHandlesOfOthersAndTheOwnTileLast) {
  const NodeEntry region = Fetch(0, kWhole);
  const Node& fetch = NodeOf(region);
  EXPECT_EQ(fetch.op, kMultiFetchOp);
  EXPECT_EQ(builder_.worker(region), 0);
  ASSERT_EQ(fetch.inputs.size(), 3u);
  EXPECT_EQ(NodeOf(fetch.inputs[0]).op, kPublishOp);
  EXPECT_EQ(builder_.worker(fetch.inputs[0]), 1);
  EXPECT_EQ(NodeOf(fetch.inputs[0]).inputs[0].node, tiles_[1].node);
  EXPECT_EQ(builder_.worker(fetch.inputs[1]), 2);
  EXPECT_EQ(fetch.inputs[2].node, tiles_[0].node);
  const MultiFetchSpec spec = SpecOf(region);
  EXPECT_EQ(spec.num_remote, 2);
  EXPECT_EQ(spec.pieces[0].source, 2) << "its own columns come first";
  EXPECT_EQ(spec.pieces[1].source, 0);
  EXPECT_EQ(spec.shape, (Shape{4, 6}));
  EXPECT_EQ(builder_.shape({region.node, 1}), (Shape{1}));
  EXPECT_EQ(builder_.dtype({region.node, 1}), kInt64);
}

TEST_F(EmitMultiFetch, WithoutATileOfItsOwnEverySourceIsRemote) {
  const NodeEntry region = Fetch(0, {{0, 2}, {4, 6}});
  EXPECT_EQ(SpecOf(region).num_remote, 2);
  EXPECT_EQ(NodeOf(region).inputs.size(), 2u);
}

TEST_F(EmitMultiFetch, ATileIsPublishedOnceForAllReaders) {
  const NodeEntry a = Fetch(0, kWhole);
  const NodeEntry b = Fetch(2, kWhole);
  EXPECT_EQ(NodeOf(a).inputs[0].node, NodeOf(b).inputs[1].node) << "of worker 1";
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
    EXPECT_EQ(spec.pieces[1].source, 0) << "the remote one";
  }
}

// Two fetches read worker 1's tile, but only one of them is needed.
TEST_F(EmitMultiFetch, RetirementsWaitForTheReadersThatAHeadNeeds) {
  const NodeEntry needed = Fetch(0, {{0, 1}, {4, 3}});
  Fetch(2, {{0, 3}, {4, 5}});
  builder_.graph().heads = {needed};
  EXPECT_EQ(Retire(&builder_), 1);
  ASSERT_EQ(builder_.graph().heads.size(), 2u);
  EXPECT_EQ(builder_.graph().heads[1].node, needed.node) << "behind the retirement";
  const Node& retire = NodeOf(builder_.graph().heads[0]);
  EXPECT_EQ(retire.op, kRetireOp);
  EXPECT_EQ(builder_.worker(builder_.graph().heads[0]), 1);
  ASSERT_EQ(retire.inputs.size(), 3u);
  EXPECT_EQ(retire.inputs[0].node, tiles_[1].node);
  EXPECT_EQ(NodeOf(retire.inputs[1]).op, kPublishOp);
  EXPECT_EQ(retire.inputs[2].node, needed.node);
  EXPECT_EQ(retire.inputs[2].index, 1) << "its acknowledgement";
  EXPECT_EQ(retire.attrs.at(kNumArgsAttr), "3");
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

TEST_F(EmitDirectly, PlainTilesAreInputsOfTheFetch) {
  Tiles({4, 2});
  const Node fetch = Fetch(Crossing::kPlainTiles);
  EXPECT_TRUE(IsDirect(fetch));
  ASSERT_EQ(fetch.inputs.size(), 2u);
  EXPECT_EQ(fetch.inputs[0].node, tiles_[1].node);
  EXPECT_EQ(fetch.inputs[1].node, tiles_[0].node) << "its own is last";
  EXPECT_EQ(ReadSpec(fetch.attrs.at(kSpecAttr)).num_remote, 0);
  builder_.graph().heads = {region_};
  EXPECT_EQ(Retire(&builder_), 0);
}

TEST_F(EmitDirectly, ParametersArePublished) {
  Tiles({4, 2}, "");
  const Node fetch = Fetch(Crossing::kPlainTiles);
  EXPECT_EQ(NodeOf(fetch.inputs[0]).op, kPublishOp);
  EXPECT_TRUE(IsDirect(fetch)) << "it reads the handle itself";
  builder_.graph().heads = {region_};
  EXPECT_EQ(Retire(&builder_), 1);
  EXPECT_TRUE(IsDirect(NodeOf(builder_.graph().heads[0])));
}

// Tensors of three dimensions may be in one of oneDNN's layouts.
TEST_F(EmitDirectly, SmallTilesOfOtherLayoutsAreCopiedAndLargeOnesPublished) {
  Tiles({4, 2, 512});
  const Node small = Fetch(Crossing::kPlainTiles);
  const Node copy = NodeOf(small.inputs[0]);
  EXPECT_EQ(copy.op, kMultiFetchOp);
  EXPECT_EQ(copy.inputs[0].node, tiles_[1].node);
  EXPECT_EQ(builder_.worker(small.inputs[0]), 1);
  EXPECT_EQ(builder_.shape(small.inputs[0]), (Shape{4, 2, 512}));
  EXPECT_EQ(small.inputs[1].node, tiles_[0].node) << "its own needs no copy";
  tiles_.clear();
  Tiles({4, 2, 513});
  EXPECT_EQ(NodeOf(Fetch(Crossing::kPlainTiles).inputs[0]).op, kPublishOp);
  EXPECT_EQ(Fetch(Crossing::kTiles).inputs[0].node, tiles_[1].node);
}

// Views support at most four dimensions.
TEST_F(EmitDirectly, TilesOfFiveDimensionsArePublishedWhoeverMadeThem) {
  for (const char* op : {"made", kMultiFetchOp}) {
    tiles_.clear();
    Tiles({4, 2, 1, 1, 1}, op);
    EXPECT_EQ(NodeOf(Fetch(Crossing::kPlainTiles).inputs[0]).op, kPublishOp) << op;
    EXPECT_EQ(Fetch(Crossing::kTiles).inputs[0].node, tiles_[1].node) << op;
  }
  tiles_.clear();
  Tiles({4, 2, 1, 513}, kMultiFetchOp);
  EXPECT_EQ(Fetch(Crossing::kPlainTiles).inputs[0].node, tiles_[1].node);
}

TEST_F(EmitDirectly, GradientsOfWeightsAreReadWhereTheyAre) {
  for (const int64_t width : {1, 4096}) {
    tiles_.clear();
    Tiles({4, 2, 3, width}, "_backward_Convolution", 2);
    // Output 0 is the gradient of the data.
    EXPECT_NE(Fetch(Crossing::kPlainTiles).inputs[0].node, tiles_[1].node);
    for (NodeEntry& tile : tiles_) tile.index = 1;
    const NodeEntry read = Fetch(Crossing::kPlainTiles).inputs[0];
    EXPECT_EQ(read.node, tiles_[1].node);
    EXPECT_EQ(read.index, 1);
  }
}

TEST_F(EmitDirectly, ASmallTileIsCopiedOnce) {
  Tiles({4, 2, 1});
  const auto region = [&](int64_t rows) {
    const Box tile = WholeBox(builder_.shape(tiles_[0]));
    Box read = tile;
    read.end[0] = rows;
    return emitter_->Emit(PlanFetch(0, read, tile, {{1, tile}}), tiles_, kFloat32, "f");
  };
  Fetch(Crossing::kPlainTiles);
  const NodeEntry copy = NodeOf(region_).inputs[0];
  EXPECT_EQ(NodeOf(region(2)).inputs[0].node, copy.node);
  EXPECT_EQ(NodeOf(region(3)).inputs[0].node, copy.node);
}

}  // namespace
}  // namespace tofu
