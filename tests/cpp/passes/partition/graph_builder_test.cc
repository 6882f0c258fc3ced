#include "passes/partition/graph_builder.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tofu {
namespace {

constexpr int kFloat32 = 0;
constexpr int kFloat64 = 1;
constexpr int kWorker = 3;

NodeEntry Variable(GraphBuilder* builder, const Shape& shape, int dtype = kFloat32) {
  Node node;
  node.name = "x";
  return {builder->Add(std::move(node), kWorker, {shape}, {dtype}), 0};
}

const Node& NodeOf(GraphBuilder& builder, NodeEntry entry) {
  return builder.graph().nodes[entry.node];
}

TEST(GraphBuilder, WritesTuplesAsMxnetDoes) {
  EXPECT_EQ(TupleText({}), "()");
  EXPECT_EQ(TupleText({2}), "(2,)");
  EXPECT_EQ(TupleText({2, 3}), "(2, 3)");
}

TEST(GraphBuilder, NamesEveryDtype) {
  EXPECT_EQ(DtypeName(0), "float32");
  EXPECT_EQ(DtypeName(7), "bool");
  EXPECT_EQ(DtypeName(12), "bfloat16");
  EXPECT_EQ(DtypeName(14), "complex128");
  EXPECT_THROW(DtypeName(15), UserError);
  EXPECT_THROW(DtypeName(-1), UserError);
}

TEST(GraphBuilder, KnowsWhichGradientsOfConcatCannotReadBlocks) {
  const auto must = [](const std::vector<Shape>& outputs, const Shape& input,
                       const char* op = "_backward_Concat") {
    return MustReadPlain(op, outputs, input);
  };
  EXPECT_TRUE(must({{4, 24, 2}, {4, 8, 2}}, {4, 32, 2}));
  EXPECT_TRUE(must({{4, 16, 2}, {4, 8, 2}, {4, 16, 2}}, {4, 40, 2}));
  EXPECT_FALSE(must({{4, 16, 2}, {4, 8, 2}}, {4, 24, 2})) << "the last part may be short";
  EXPECT_FALSE(must({{4, 24, 2}, {4, 24, 1}}, {4, 24, 3})) << "not of channels";
  EXPECT_FALSE(must({{4, 24, 2}, {4, 8, 2}}, {4, 32, 2}, "_backward_mul"));
  EXPECT_FALSE(must({{24}, {8}}, {32}));
}

TEST(GraphBuilder, PlacesNodesAndNamesEachOnce) {
  GraphBuilder builder;
  for (int i = 0; i < 3; ++i) Variable(&builder, {2});
  std::vector<std::string> names;
  for (const Node& node : builder.graph().nodes) {
    names.push_back(node.name);
    EXPECT_EQ(node.group, "worker3");
  }
  EXPECT_EQ(names, (std::vector<std::string>{"x", "x#2", "x#3"}));
  EXPECT_EQ(builder.node_workers(), (std::vector<int>{3, 3, 3}));
}

TEST(GraphBuilder, RefusesInputsThatAreNotThereYetAndOutputsWithoutShapes) {
  GraphBuilder builder;
  Node node;
  node.op = "add";
  node.inputs = {{0, 0}};
  EXPECT_THROW(builder.Add(node, 0, {{2}}, {0}), InternalError);
  node.inputs.clear();
  node.num_outputs = 2;
  EXPECT_THROW(builder.Add(node, 0, {{2}}, {0}), InternalError);
  EXPECT_THROW(builder.Add(node, 0, {{2}, {2}}, {0}), InternalError);
}

// A slice is one slice_axis per cut dimension for float32, and one slice for other types.
TEST(GraphBuilder, SlicesTheDimensionsThatAreCut) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, {4, 6, 8});
  const NodeEntry sliced = builder.Slice("s", kWorker, x, {{1, 0, 2}, {4, 6, 5}});
  EXPECT_EQ(builder.shape(sliced), (Shape{3, 6, 3}));
  const Node& last = NodeOf(builder, sliced);
  EXPECT_EQ(last.op, "slice_axis");
  EXPECT_EQ(last.attrs.at("axis"), "2");
  EXPECT_EQ(last.attrs.at("begin"), "2");
  EXPECT_EQ(last.attrs.at("end"), "5");
  const Node& first = NodeOf(builder, last.inputs[0]);
  EXPECT_EQ(first.attrs.at("axis"), "0");
  EXPECT_EQ(builder.shape(last.inputs[0]), (Shape{3, 6, 8}));
  EXPECT_EQ(first.inputs[0].node, x.node) << "nothing for the dimension that is whole";
  const NodeEntry y = Variable(&builder, {4, 6}, kFloat64);
  const Node slice = NodeOf(builder, builder.Slice("t", kWorker, y, {{1, 2}, {3, 6}}));
  EXPECT_EQ(slice.op, "slice");
  EXPECT_EQ(slice.attrs.at("begin"), "(1, 2)");
  EXPECT_EQ(slice.attrs.at("end"), "(3, 6)");
}

TEST(GraphBuilder, ASliceLiesInsideItsSourceAndOfAllOfItIsNone) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, {4});
  EXPECT_EQ(builder.Slice("s", kWorker, x, {{0}, {4}}).node, x.node);
  EXPECT_THROW(builder.Slice("s", kWorker, x, {{0}, {5}}), InternalError);
  EXPECT_THROW(builder.Slice("s", kWorker, x, {{-1}, {4}}), InternalError);
}

TEST(GraphBuilder, ConcatenatesPartsThatFit) {
  GraphBuilder builder;
  const NodeEntry a = Variable(&builder, {2, 3});
  const NodeEntry b = Variable(&builder, {2, 5});
  const NodeEntry all = builder.Concat("c", kWorker, {a, b, a}, 1);
  EXPECT_EQ(builder.shape(all), (Shape{2, 11}));
  EXPECT_EQ(NodeOf(builder, all).attrs.at("dim"), "1");
  EXPECT_EQ(NodeOf(builder, all).attrs.at("num_args"), "3");
  EXPECT_THROW(builder.Concat("c", kWorker, {a, b}, 0), InternalError);
  const NodeEntry other = Variable(&builder, {2, 3}, kFloat64);
  EXPECT_THROW(builder.Concat("c", kWorker, {a, other}, 1), InternalError);
}

TEST(GraphBuilder, FillsWithZerosOrAValue) {
  GraphBuilder builder;
  const Node zeros = NodeOf(builder, builder.Fill("z", kWorker, {2}, kFloat64, "0"));
  EXPECT_EQ(zeros.op, "_zeros");
  EXPECT_EQ(zeros.attrs.at("shape"), "(2,)");
  EXPECT_EQ(zeros.attrs.at("dtype"), "float64");
  const Node full = NodeOf(builder, builder.Fill("f", kWorker, {2}, kFloat32, "-inf"));
  EXPECT_EQ(full.op, "_full");
  EXPECT_EQ(full.attrs.at("value"), "-inf");
}

TEST(GraphBuilder, CopiesKeepTheDtypeAndCastsChangeIt) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, {2}, kFloat64);
  EXPECT_EQ(builder.dtype(builder.Copy("c", 1, x)), kFloat64);
  EXPECT_EQ(builder.worker(builder.Copy("c", 1, x)), 1);
  const NodeEntry cast = builder.Cast("f", kWorker, x, kFloat32);
  EXPECT_EQ(builder.dtype(cast), kFloat32);
  EXPECT_EQ(NodeOf(builder, cast).attrs.at("dtype"), "float32");
}

TEST(GraphBuilder, ReducesSumsAtOnceAndOthersInTheOrderOfTheTerms) {
  GraphBuilder builder;
  std::vector<NodeEntry> terms;
  for (int i = 0; i < 3; ++i) terms.push_back(Variable(&builder, {2}));
  const Node sum = NodeOf(builder, builder.Reduce("s", kWorker, terms, Reducer::kSum));
  EXPECT_EQ(sum.op, "add_n");
  EXPECT_EQ(sum.attrs.at("num_args"), "3");
  const std::map<Reducer, std::string> chains = {{Reducer::kMax, "_maximum"},
                                                 {Reducer::kMin, "_minimum"},
                                                 {Reducer::kProd, "elemwise_mul"}};
  for (const auto& [reducer, op] : chains) {
    const Node last = NodeOf(builder, builder.Reduce("m", kWorker, terms, reducer));
    EXPECT_EQ(last.op, op);
    EXPECT_EQ(last.inputs[1].node, terms[2].node);
    const Node first = NodeOf(builder, last.inputs[0]);
    EXPECT_EQ(first.op, op);
    EXPECT_EQ(first.inputs[0].node, terms[0].node);
    EXPECT_EQ(first.inputs[1].node, terms[1].node);
  }
  const Node sum_of_powers =
      NodeOf(builder, builder.Reduce("l", kWorker, terms, Reducer::kLogSumExp));
  EXPECT_EQ(sum_of_powers.op, "add_n");
  // Nothing bounds the largest term, whose power is one even if it is infinite.
  EXPECT_EQ(NodeOf(builder, sum_of_powers.inputs[0]).op, "_maximum");
  const Node logarithm = NodeOf(builder, sum_of_powers.inputs[1]);
  EXPECT_EQ(logarithm.op, "log");
  const Node power = NodeOf(builder, NodeOf(builder, logarithm.inputs[0]).inputs[0]);
  EXPECT_EQ(power.op, "where");
  EXPECT_EQ(NodeOf(builder, power.inputs[0]).op, "_equal");
  terms.push_back(Variable(&builder, {3}));
  EXPECT_THROW(builder.Reduce("s", kWorker, terms, Reducer::kSum), InternalError);
}

}  // namespace
}  // namespace tofu
