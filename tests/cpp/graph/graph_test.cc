#include "graph/graph.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

using Json = nlohmann::json;

Json Valid() {
  ExampleGraph example = Mlp(4, 4, 1);
  return Json::parse(WriteGraph(example.graph()));
}

std::string ErrorOf(const std::string& text) {
  try {
    ReadGraph(text);
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kGraph);
    return error.what();
  }
  return "no error";
}

TEST(Graph, WhatIsWrittenReadsBackTheSame) {
  ExampleGraph example = UnrolledRnn(4, 4, 3);
  const std::string text = WriteGraph(example.graph());
  const Graph graph = ReadGraph(text);
  EXPECT_EQ(WriteGraph(graph), text);
  EXPECT_EQ(GraphHash(graph), GraphHash(example.graph()));
  EXPECT_EQ(graph.shapes, example.graph().shapes);
}

TEST(Graph, AGroupIsAnAttributeOfTheDocument) {
  Graph graph = Mlp(4, 4, 1).graph();
  const std::string hash = GraphHash(graph);
  graph.nodes[1].attrs = {{"__a__", "1"}, {"z", "2"}};
  graph.nodes[1].group = "worker1";
  EXPECT_NE(GraphHash(graph), hash);
  const std::string text = WriteGraph(graph);
  EXPECT_NE(text.find(R"("attrs":{"__a__":"1","__ctx_group__":"worker1","z":"2"})"),
            std::string::npos);
  const Graph read = ReadGraph(text);
  EXPECT_EQ(read.nodes[1].group, "worker1");
  EXPECT_EQ(read.nodes[1].attrs, (Attrs{{"__a__", "1"}, {"z", "2"}}));
  EXPECT_TRUE(read.nodes[0].group.empty());
  EXPECT_EQ(WriteGraph(read), text);
}

// The graph has every member, and texts that JSON escapes.
TEST(Graph, IsWrittenAsMxnetReadsIt) {
  Graph graph;
  Node variable;
  variable.name = "a\"b\\c\n\x01\x7f \u00e9\xff";
  Node node;
  node.op = "op";
  node.name = "y";
  node.attrs = {{"k", "v"}, {"text", "\t"}};
  node.inputs = {{0, 0}};
  node.control_deps = {0};
  node.num_outputs = 2;
  graph.nodes = {variable, node};
  graph.heads = {{1, 1}};
  graph.head_roles = {"output"};
  graph.shapes = {{2, 3}, {}, {7}};
  graph.dtypes = {0, 6, 2};
  IndexEntries(&graph);
  EXPECT_EQ(WriteGraph(graph),
            R"({"nodes":[{"op":"null","name":"a\"b\\c\n\u0001)"
            "\x7f \u00e9\ufffd"
            R"(","inputs":[]},{"op":"op","name":"y","attrs":{"k":"v","text":"\t"},)"
            R"("inputs":[[0,0,0]],"control_deps":[0]}],"arg_nodes":[0],)"
            R"("node_row_ptr":[0,1,3],"heads":[[1,1,0]],"attrs":)"
            R"({"mxnet_version":["int",10901],"shape":["list_shape",[[2,3],[],[7]]],)"
            R"("dtype":["list_int",[0,6,2]],"tofu_heads":["list_str",["output"]]}})");
  EXPECT_EQ(ReadGraph(WriteGraph(graph)).nodes[1].attrs, node.attrs);
}

TEST(Graph, TheHashKnowsShapesAttributesAndEdges) {
  ExampleGraph example = Mlp(4, 4, 1);
  const std::string hash = GraphHash(example.graph());
  EXPECT_EQ(hash.size(), 16u);
  Graph other = example.graph();
  other.shapes[0][0] = 5;
  EXPECT_NE(GraphHash(other), hash);
  other = example.graph();
  other.nodes[3].attrs["transpose_a"] = "1";
  EXPECT_NE(GraphHash(other), hash);
  other = example.graph();
  std::swap(other.nodes[3].inputs[0], other.nodes[3].inputs[1]);
  EXPECT_NE(GraphHash(other), hash);
}

TEST(Graph, TheHashKnowsWhateverAPlanDependsOn) {
  ExampleGraph example;
  const std::vector<NodeEntry> halves =
      example.Split("split", example.Variable("x", {4, 8}), 2);
  example.Head(halves[0], "output");
  example.Head(example.Elementwise("y", {halves[0]}), "output");
  const Graph graph = example.graph();
  const std::vector<std::function<void(Graph*)>> changes = {
      [](Graph* g) { g->nodes[2].op = "tanh"; },
      [](Graph* g) { g->nodes[2].name = "z"; },
      [](Graph* g) { g->nodes[2].attrs["a"] = "b"; },
      [](Graph* g) { g->nodes[1].attrs["num_outputs"] = "3"; },
      [](Graph* g) { g->nodes[2].inputs[0].index = 1; },
      [](Graph* g) { g->nodes[2].inputs[0].node = 0; },
      [](Graph* g) { g->nodes[2].num_outputs = 2; },
      [](Graph* g) { g->heads[0].index = 1; },
      [](Graph* g) { std::swap(g->heads[0], g->heads[1]); },
      [](Graph* g) { g->head_roles[1] = "gradient:x"; },
      [](Graph* g) { g->shapes[0] = {8, 4}; },
      [](Graph* g) { g->shapes[0] = {4, 8, 1}; },
      [](Graph* g) { g->dtypes[3] = 1; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    Graph changed = graph;
    changes[i](&changed);
    EXPECT_NE(GraphHash(changed), GraphHash(graph)) << "change " << i;
  }
  EXPECT_EQ(GraphHash(ReadGraph(WriteGraph(graph))), GraphHash(graph));
}

TEST(Graph, EveryTruncatedDocumentIsAUserError) {
  const std::string text = Valid().dump();
  for (size_t length = 0; length < text.size(); ++length) {
    ASSERT_THROW(ReadGraph(text.substr(0, length)), UserError) << "at " << length;
  }
}

// Replaces each value of the document by values of other types, one at a time.
TEST(Graph, NoForeignValueAnywhereIsMoreThanAUserError) {
  const Json valid = Valid();
  const Json flat = valid.flatten();
  const Json values[] = {nullptr,        -1,      1e300, "x", Json::array(),
                         Json::object(), 1u << 31};
  int refused = 0;
  for (const auto& [path, original] : flat.items()) {
    for (const Json& value : values) {
      Json changed = valid;
      changed[Json::json_pointer(path)] = value;
      try {
        ReadGraph(changed.dump());
      } catch (const UserError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, static_cast<int>(flat.size()) * 3);
}

TEST(Graph, ErrorsSayWhereWhatAndWhatElse) {
  EXPECT_NE(ErrorOf("[]").find("found an array of 0, expected a JSON object"),
            std::string::npos);
  EXPECT_NE(ErrorOf("{}").find("expected the key \"nodes\""), std::string::npos);

  Json json = Valid();
  json["attrs"].erase("shape");
  EXPECT_NE(ErrorOf(json.dump())
                .find("graph: attrs: found an object, expected the key "
                      "\"shape\", which is missing; write it with "),
            std::string::npos);

  json = Valid();
  json["nodes"][3]["inputs"][0][0] = 99;
  EXPECT_NE(ErrorOf(json.dump())
                .find("nodes[3].inputs[0][0]: found 99, expected an "
                      "integer from 0 to 2"),
            std::string::npos)
      << ErrorOf(json.dump());

  json = Valid();
  json["attrs"]["shape"][1][0] = {0, 4};
  EXPECT_NE(ErrorOf(json.dump()).find("attrs.shape[1][0][0]: found 0"),
            std::string::npos);

  json = Valid();
  json["attrs"]["dtype"][1].erase(0);
  EXPECT_NE(ErrorOf(json.dump()).find("one for every output of every node"),
            std::string::npos);
}

TEST(Graph, ANodeCannotReadALaterOne) {
  Json json = Valid();
  json["nodes"][3]["inputs"][0] = {3, 0, 0};
  EXPECT_NE(ErrorOf(json.dump()).find("from 0 to 2"), std::string::npos);
}

TEST(Graph, AHugeTensorIsRefusedBeforeItsSizeOverflows) {
  Json json = Valid();
  json["attrs"]["shape"][1][0] = {1 << 30, 1 << 30, 1 << 30};
  EXPECT_NE(ErrorOf(json.dump()).find("at most 2^34 elements"), std::string::npos);
}

TEST(Graph, DeepNestingDoesNotExhaustTheStack) {
  const std::string deep(200000, '[');
  EXPECT_THROW(ReadGraph(deep), UserError);
  EXPECT_THROW(ReadGraph("{\"nodes\":" + deep + std::string(200000, ']') + "}"),
               UserError);
}

TEST(Graph, UsedEntriesAreWhatSomeHeadNeeds) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6});
  const NodeEntry unread = example.Variable("unread", {4, 6});
  const std::vector<NodeEntry> parts = example.Split("parts", x, 3);
  example.Elementwise("dead", {unread});
  example.Head(parts[1], "output");
  const std::vector<bool> used = UsedEntries(example.graph());
  EXPECT_EQ(used, (std::vector<bool>{true, false, false, true, false, false}));
}

TEST(Graph, TheHashTellsWhereOneShapeEndsAndTheNextBegins) {
  const auto hash = [](const Shape& x, const Shape& y) {
    ExampleGraph example;
    example.Head(example.Variable("x", x), "output");
    example.Head(example.Variable("y", y), "output");
    return GraphHash(example.graph());
  };
  EXPECT_EQ(hash({2, 3}, {4}), hash({2, 3}, {4}));
  EXPECT_NE(hash({2, 3}, {4}), hash({2}, {3, 4}));
  EXPECT_NE(hash({2, 3}, {}), hash({2}, {3}));
}

TEST(Graph, UnknownTypesHaveNoSize) {
  EXPECT_EQ(DtypeBytes(1), 8);
  EXPECT_EQ(DtypeBytes(7), 1);
  EXPECT_THROW(DtypeBytes(99), UserError);
  EXPECT_THROW(DtypeBytes(-1), UserError);
}

}  // namespace
}  // namespace tofu
