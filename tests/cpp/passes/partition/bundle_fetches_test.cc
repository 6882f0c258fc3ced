#include "passes/partition/bundle_fetches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fetch/crossing.h"
#include "fetch/fetch_bundle.h"
#include "fetch/node_names.h"
#include "passes/divide/fetch.h"
#include "passes/partition/emit_multifetch.h"
#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

constexpr int kFloat32 = 0;

// Worker 0 holds a and b, and worker 1 reads both whole.
class BundleFetchesTest : public testing::Test {
 protected:
  NodeEntry Tile(const std::string& name, int worker = 0) {
    Node node;
    node.name = name;
    return {builder_.Add(std::move(node), worker, {{4}}, {kFloat32}), 0};
  }

  NodeEntry Fetch(NodeEntry tile, const std::string& name) {
    const Box box = {{0}, {4}};
    if (!emitter_) emitter_.emplace(Crossing::kPlainTiles, &builder_);
    return emitter_->Emit(PlanFetch(1, box, box, {{0, box}}), {tile, tile}, kFloat32,
                          name);
  }

  NodeEntry Use(const std::string& name, const std::vector<NodeEntry>& inputs) {
    Node node;
    node.op = "add_n";
    node.name = name;
    node.inputs = inputs;
    return {builder_.Add(std::move(node), 1, {{4}}, {kFloat32}), 0};
  }

  // The nodes of an operator after the pass.
  std::vector<Node> Bundled(const std::string& op) {
    BundleFetches(gradients_, &builder_.graph(), &builder_.node_workers());
    EXPECT_EQ(builder_.node_workers().size(), builder_.graph().nodes.size());
    std::vector<Node> found;
    for (const Node& node : builder_.graph().nodes) {
      if (node.op == op) found.push_back(node);
    }
    return found;
  }

  // Fetches of gradients: worker 0 makes a tile of each of these sizes.
  std::vector<NodeEntry> FetchGradients(const std::vector<int64_t>& sizes,
                                        const std::vector<int>& bundles) {
    if (!emitter_) emitter_.emplace(Crossing::kPlainTiles, &builder_);
    std::vector<NodeEntry> fetched;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t size = sizes[i];
      const std::string name = "g" + std::to_string(builder_.graph().nodes.size());
      Node node;
      node.op = "make";
      node.name = name;
      const Box box = {{0}, {size}};
      const NodeEntry tile = {builder_.Add(std::move(node), 0, {{size}}, {kFloat32}), 0};
      fetched.push_back(emitter_->Emit(PlanFetch(1, box, box, {{0, box}}), {tile, tile},
                                       kFloat32, "f" + name));
      gradients_.emplace(static_cast<int>(builder_.graph().heads.size()), bundles[i]);
      builder_.graph().heads.push_back(fetched.back());
    }
    return fetched;
  }

  GraphBuilder builder_;
  std::map<int, int> gradients_;  // from heads to bundles
  std::optional<MultiFetchEmitter> emitter_;
};

TEST_F(BundleFetchesTest, RegionsThatOneOperatorReadsAreOneFetch) {
  const NodeEntry a = Tile("a");
  const NodeEntry b = Tile("b");
  const NodeEntry use = Use("use", {Fetch(a, "fa"), Fetch(b, "fb")});
  builder_.graph().heads = {use};
  const std::vector<Node> fetches = Bundled(kMultiFetchOp);
  ASSERT_EQ(fetches.size(), 1u);
  EXPECT_EQ(fetches[0].num_outputs, 2);
  ASSERT_EQ(fetches[0].inputs.size(), 2u);
  EXPECT_EQ(NumInputs(ReadBundle(fetches[0].attrs.at(kSpecAttr))), 2);
  EXPECT_EQ(fetches[0].attrs.at(kLabelAttr), fetches[0].name);
  const Graph& graph = builder_.graph();
  EXPECT_EQ(graph.nodes[fetches[0].inputs[0].node].name, "a");
  EXPECT_EQ(graph.nodes[fetches[0].inputs[1].node].name, "b");
  const Node& user = graph.nodes[graph.heads[0].node];
  EXPECT_EQ(user.inputs[0].node, user.inputs[1].node);
  EXPECT_EQ(user.inputs[0].index, 0);
  EXPECT_EQ(user.inputs[1].index, 1);
}

TEST_F(BundleFetchesTest, WhatDifferentOperatorsReadStaysApart) {
  const NodeEntry a = Tile("a");
  const NodeEntry b = Tile("b");
  const NodeEntry fetched = Fetch(a, "fa");
  const NodeEntry both = Use("both", {fetched, Fetch(b, "fb")});
  builder_.graph().heads = {both, Use("one", {fetched})};
  EXPECT_EQ(Bundled(kMultiFetchOp).size(), 2u);
}

TEST_F(BundleFetchesTest, TheScriptReadsAHeadByItself) {
  const NodeEntry a = Tile("a");
  const NodeEntry b = Tile("b");
  const NodeEntry fa = Fetch(a, "fa");
  const NodeEntry fb = Fetch(b, "fb");
  builder_.graph().heads = {Use("use", {fa, fb}), fa};
  EXPECT_EQ(Bundled(kMultiFetchOp).size(), 2u);
  EXPECT_EQ(builder_.graph().nodes[builder_.graph().heads[1].node].num_outputs, 1);
}

TEST_F(BundleFetchesTest, GradientsOfABundleAreOneFetch) {
  FetchGradients({1024, 8, 3000, 1024, 40}, {0, 0, 0, 1, 1});
  const std::vector<Node> fetches = Bundled(kMultiFetchOp);
  ASSERT_EQ(fetches.size(), 2u);
  EXPECT_EQ(fetches[0].num_outputs, 3);
  EXPECT_EQ(fetches[1].num_outputs, 2);
  const Graph& graph = builder_.graph();
  const int64_t sizes[] = {1024, 8, 3000, 1024, 40};
  for (size_t head = 0; head < graph.heads.size(); ++head) {
    EXPECT_EQ(graph.shape(graph.heads[head]), (Shape{sizes[head]}));
    EXPECT_EQ(graph.heads[head].index, head < 3 ? head : head - 3);
  }
  for (int node = 0; node < graph.num_nodes(); ++node) {
    for (NodeEntry input : graph.nodes[node].inputs) EXPECT_LT(input.node, node);
  }
}

TEST_F(BundleFetchesTest, GradientsThatAreReadInTheStepAreFetchedApart) {
  const std::vector<NodeEntry> fetched = FetchGradients({4, 4, 4, 4}, {0, 0, 0, 0});
  builder_.graph().heads.push_back(Use("use", {fetched[0]}));
  builder_.graph().heads.push_back(fetched[1]);  // an output of the forward half, too
  EXPECT_EQ(Bundled(kMultiFetchOp).size(), 3u);
}

}  // namespace
}  // namespace tofu
