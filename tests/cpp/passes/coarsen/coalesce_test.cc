#include "passes/coarsen/coalesce.h"

#include <gtest/gtest.h>

#include <set>

#include "passes/coarsen/elementwise.h"
#include "passes/coarsen/timesteps.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

CoarseGraph Coarsen(ExampleGraph* example) {
  const Groups groups = GroupForwardBackward(example->graph(), example->table());
  return Coalesce(example->graph(), example->table(), groups);
}

int TensorClassOf(const Graph& graph, const CoarseGraph& coarse,
                  const std::string& name) {
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (graph.nodes[node].name == name) {
      return coarse.tensor_class[graph.first_entry[node]];
    }
  }
  ADD_FAILURE() << "no node " << name;
  return -1;
}

int OpClassOf(const Graph& graph, const CoarseGraph& coarse, const std::string& name) {
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (graph.nodes[node].name == name) return coarse.op_class[node];
  }
  ADD_FAILURE() << "no node " << name;
  return -1;
}

TEST(Coalesce, ConsecutiveElementwiseOperatorsAreOneDecision) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6});
  const NodeEntry y = example.MatMul("y", x, example.Variable("w", {6, 8}));
  const NodeEntry a = example.Elementwise("a", {y});
  const NodeEntry b = example.Elementwise("b", {a, y}, "add");
  example.Head(b, "output");
  const CoarseGraph coarse = Coarsen(&example);
  EXPECT_EQ(TensorClassOf(example.graph(), coarse, "y"),
            TensorClassOf(example.graph(), coarse, "b"));
  EXPECT_NE(TensorClassOf(example.graph(), coarse, "x"),
            TensorClassOf(example.graph(), coarse, "y"));
  EXPECT_EQ(OpClassOf(example.graph(), coarse, "a"),
            OpClassOf(example.graph(), coarse, "b"));
}

TEST(Coalesce, WithoutMergingOnlyWhatIsTiledTogetherSharesAClass) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6});
  const NodeEntry w = example.Variable("w", {6, 6}, "parameter");
  const NodeEntry y = example.MatMul("y", x, w);
  const NodeEntry a = example.Elementwise("a", {y});
  const NodeEntry g = example.Elementwise("g", {w});
  example.Head(a, "output");
  example.Head(g, "gradient:w");
  const Groups groups = GroupForwardBackward(example.graph(), example.table());
  const CoarseGraph coarse = Coalesce(example.graph(), example.table(), groups, {false});
  EXPECT_NE(TensorClassOf(example.graph(), coarse, "y"),
            TensorClassOf(example.graph(), coarse, "a"));
  EXPECT_EQ(TensorClassOf(example.graph(), coarse, "w"),
            TensorClassOf(example.graph(), coarse, "g"));
  EXPECT_EQ(coarse.tensors.size(), 4u);
  for (const OpClass& op : coarse.operators) {
    EXPECT_EQ(op.nodes.size(), 1u);
    EXPECT_FALSE(op.elementwise);
  }
}

TEST(Coalesce, OnlyTheTensorsOfReleasedOperatorsHaveClassesOfTheirOwn) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {8, 6});
  const NodeEntry a = example.Elementwise("a", {x});
  const NodeEntry b = example.Elementwise("b", {a});
  const NodeEntry c = example.Elementwise("c", {b});
  example.Head(c, "output");
  const Groups groups = GroupForwardBackward(example.graph(), example.table());
  CoalesceOptions options;
  options.released.assign(example.graph().nodes.size(), false);
  options.released[b.node] = true;
  const CoarseGraph coarse = Coalesce(example.graph(), example.table(), groups, options);
  const auto of = [&](const char* name) {
    return TensorClassOf(example.graph(), coarse, name);
  };
  EXPECT_EQ(of("x"), of("a"));
  EXPECT_NE(of("a"), of("b"));
  EXPECT_EQ(of("b"), of("c"));
  for (const NodeEntry& entry : {a, b, c}) {
    EXPECT_EQ(coarse.operators[coarse.op_class[entry.node]].elementwise,
              entry.node != b.node);
  }
}

TEST(Coalesce, AFlagAloneDoesNotMakeAnOperatorElementwise) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 4});
  example.Head(example.MatMul("y", x, x), "output");
  StrategyTable table = example.table();
  EXPECT_FALSE(IsElementwise(example.graph(), table, 1));
  table.rows[0].elementwise = true;
  EXPECT_FALSE(IsElementwise(example.graph(), table, 1)) << "its accesses are not";
}

TEST(Coalesce, AParameterItsGradientAndItsStateAreOneClass) {
  ExampleGraph example = Mlp(8, 6, 2);
  const CoarseGraph coarse = Coarsen(&example);
  EXPECT_EQ(TensorClassOf(example.graph(), coarse, "fc1_weight"),
            TensorClassOf(example.graph(), coarse, "fc1_dw"));
  EXPECT_NE(TensorClassOf(example.graph(), coarse, "fc0_weight"),
            TensorClassOf(example.graph(), coarse, "fc1_weight"));
}

// mean is an auxiliary state with its own class; w has a momentum and a new value.
// A parameter is ready before a step begins, its gradient is not.
TEST(Coalesce, OperatorsThatReadAParameterHaveAClassOfTheirOwn) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 4});
  const NodeEntry w = example.Variable("w", {4, 4}, "parameter");
  const NodeEntry y = example.MatMul("y", x, w);
  example.Head(example.MatMul("z", x, example.Elementwise("copy", {w})), "output");
  example.Head(y, "output");
  const CoarseGraph coarse = Coarsen(&example);
  ASSERT_EQ(TensorClassOf(example.graph(), coarse, "w"),
            TensorClassOf(example.graph(), coarse, "copy"));
  const int of_w = OpClassOf(example.graph(), coarse, "y");
  const int of_copy = OpClassOf(example.graph(), coarse, "z");
  EXPECT_NE(of_w, of_copy);
  for (const OpSlot& slot : coarse.operators[of_w].slots) {
    EXPECT_EQ(slot.reads_parameter, !slot.is_output && slot.index == 1);
  }
  for (const OpSlot& slot : coarse.operators[of_copy].slots) {
    EXPECT_FALSE(slot.reads_parameter);
  }
}

TEST(Coalesce, StatesAndNewValuesAreCutAsTheirVariables) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6}, "data");
  example.Variable("mean", {6}, "aux");
  example.Variable("momentum", {6}, "state:w");
  example.Variable("other", {6});
  const NodeEntry w = example.Variable("w", {6}, "parameter");
  example.Head(example.AddBias("y", x, w), "output");
  example.Head(example.SumRows("new_mean", x), "aux:mean");
  example.Head(example.ReduceRows("new_w", x, Reducer::kMax), "update:w");
  const CoarseGraph coarse = Coarsen(&example);
  const auto of = [&](const std::string& name) {
    return TensorClassOf(example.graph(), coarse, name);
  };
  EXPECT_EQ(of("mean"), of("new_mean"));
  EXPECT_EQ(of("w"), of("new_w"));
  EXPECT_EQ(of("w"), of("momentum"));
  EXPECT_NE(of("mean"), of("w"));
  EXPECT_NE(of("other"), of("w"));
  for (const Tie& tie : coarse.ties) EXPECT_EQ(tie.reason, Tie::Reason::kParameter);
  EXPECT_EQ(coarse.ties.size(), 3u);
}

// w is updated by its gradient with a momentum; mean is no parameter.
ExampleGraph Updated(bool has_state) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6}, "data");
  const NodeEntry w = example.Variable("w", {6, 6}, "parameter");
  const NodeEntry g = example.MatMul("g", x, example.MatMul("y", x, w), true, false);
  example.Head(g, "gradient:w");
  std::vector<NodeEntry> inputs = {w, g};
  if (has_state) inputs.push_back(example.Variable("momentum", {6, 6}, "state:w"));
  example.Head(example.Elementwise("new_w", inputs, "update"), "update:w");
  return example;
}

CoarseGraph CoarsenTied(ExampleGraph* example, UpdateTies updates, bool merge = true) {
  const Groups groups = GroupForwardBackward(example->graph(), example->table());
  return Coalesce(example->graph(), example->table(), groups,
                  {merge, merge, {}, updates});
}

TEST(Coalesce, GradientsAndStatesCanBeCutApartFromTheirParameter) {
  for (const bool merge : {true, false}) {
    ExampleGraph example = Updated(true);
    const auto classes = [&](UpdateTies updates) {
      const CoarseGraph coarse = CoarsenTied(&example, updates, merge);
      std::vector<int> tensor_classes;
      for (const char* name : {"w", "new_w", "g", "momentum"}) {
        tensor_classes.push_back(TensorClassOf(example.graph(), coarse, name));
      }
      return tensor_classes;
    };
    const std::vector<int> all = classes(UpdateTies::kAll);
    EXPECT_EQ(std::set<int>(all.begin(), all.end()).size(), 1u);
    const std::vector<int> first = classes(UpdateTies::kGradient);
    EXPECT_EQ(first[0], first[1]);
    EXPECT_EQ(first[0], first[2]);
    EXPECT_NE(first[0], first[3]);
    const std::vector<int> second = classes(UpdateTies::kNone);
    EXPECT_EQ(second[0], second[1]);
    EXPECT_NE(second[0], second[2]);
    EXPECT_EQ(second[2], second[3]);
  }
}

TEST(Coalesce, AnUpdateIsSplitLikeItsStateOrElseItsGradient) {
  for (const bool has_state : {true, false}) {
    ExampleGraph example = Updated(has_state);
    const CoarseGraph coarse = CoarsenTied(&example, UpdateTies::kNone, false);
    const OpClass& update = coarse.operators[OpClassOf(example.graph(), coarse, "new_w")];
    EXPECT_TRUE(update.elementwise);
    EXPECT_TRUE(update.HasOtherTensors());
    EXPECT_EQ(update.follows, TensorClassOf(example.graph(), coarse, "g"));
  }
  ExampleGraph example = Updated(false);
  const CoarseGraph coarse = CoarsenTied(&example, UpdateTies::kGradient);
  EXPECT_FALSE(
      coarse.operators[OpClassOf(example.graph(), coarse, "new_w")].HasOtherTensors())
      << "without a state the first stage has nothing to cut apart";
}

TEST(Coalesce, TensorsOfOtherShapesAreNotTied) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6}, "data");
  example.Variable("mean", {4}, "aux");
  example.Head(example.SumRows("new_mean", x), "aux:mean");
  const CoarseGraph coarse = Coarsen(&example);
  EXPECT_TRUE(coarse.ties.empty());
}

// A random operator can have a cost when other operators of its class have none.
TEST(Coalesce, RandomElementwiseOperatorsHaveAClassOfTheirOwn) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6});
  const NodeEntry a = example.Elementwise("a", {x});
  const NodeEntry b = example.Elementwise("b", {a}, "tanh");
  example.Head(example.Dropout("c", b), "output");
  const CoarseGraph coarse = Coarsen(&example);
  EXPECT_EQ(coarse.tensors.size(), 1u);
  EXPECT_EQ(OpClassOf(example.graph(), coarse, "a"),
            OpClassOf(example.graph(), coarse, "b"));
  EXPECT_NE(OpClassOf(example.graph(), coarse, "a"),
            OpClassOf(example.graph(), coarse, "c"));
}

TEST(Coalesce, UnreadOutputsAreNoSlots) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6});
  const std::vector<NodeEntry> read = example.Split("read", x, 2);
  example.Split("unread", x, 2);
  example.Head(read[1], "output");
  const CoarseGraph coarse = Coarsen(&example);
  const OpClass& op = coarse.operators[OpClassOf(example.graph(), coarse, "read")];
  ASSERT_EQ(op.slots.size(), 2u);
  EXPECT_TRUE(op.slots[0].is_output);
  EXPECT_EQ(op.slots[0].index, 1);
  EXPECT_FALSE(op.slots[1].is_output);
  EXPECT_TRUE(
      coarse.operators[OpClassOf(example.graph(), coarse, "unread")].slots.empty());
}

// A run brings the gradient to the input's tiles; other cuts would move uncounted bytes.
TEST(Coalesce, TheGradientOfAnInputIsCutLikeTheInput) {
  ExampleGraph example = OneLayer(8, 8, 8, true);
  const CoarseGraph coarse = Coarsen(&example);
  EXPECT_EQ(TensorClassOf(example.graph(), coarse, "x"),
            TensorClassOf(example.graph(), coarse, "gx"));
}

TEST(Coalesce, TimestepsAreMergedWhateverTheirNumber) {
  std::set<size_t> tensors;
  std::set<size_t> operators;
  for (int steps : {3, 4, 7, 20}) {
    ExampleGraph example = UnrolledRnn(12, 8, steps);
    const CoarseGraph coarse = Coarsen(&example);
    tensors.insert(coarse.tensors.size());
    operators.insert(coarse.operators.size());
    const OpClass& product =
        coarse.operators[OpClassOf(example.graph(), coarse, "t1_mh")];
    EXPECT_EQ(product.nodes.size(), static_cast<size_t>(steps));
    EXPECT_EQ(TensorClassOf(example.graph(), coarse, "t0_h"),
              TensorClassOf(example.graph(), coarse, "t2_h"));
    EXPECT_EQ(OpClassOf(example.graph(), coarse, "t1_dh"),
              OpClassOf(example.graph(), coarse, "t2_dh"));
  }
  EXPECT_EQ(tensors.size(), 1u);
  EXPECT_EQ(operators.size(), 1u);
}

TEST(Coalesce, EqualLayersWithWeightsOfTheirOwnAreNotTimesteps) {
  ExampleGraph example = Residual(8, 4, 3);
  const std::vector<int> signatures = Signatures(example.graph(), example.table());
  const Groups groups = GroupForwardBackward(example.graph(), example.table());
  const std::vector<int> first = AlignTimesteps(example.graph(), groups, signatures);
  for (int node = 0; node < example.graph().num_nodes(); ++node) {
    EXPECT_EQ(first[node], node) << example.graph().nodes[node].name;
  }
}

// Towers with separate weights feed a shared layer: the shared layer's operators
// correspond, the towers do not.
TEST(Coalesce, WhatFeedsASharedLayerIsMergedOnlyIfItSharesItsWeightsToo) {
  ExampleGraph example;
  const NodeEntry shared = example.Variable("shared", {6, 6}, "parameter");
  std::vector<NodeEntry> branches;
  for (const char* name : {"left", "right"}) {
    const std::string n = name;
    const NodeEntry x = example.Variable(n + "_x", {4, 6}, "data");
    const NodeEntry w = example.Variable(n + "_w", {6, 6}, "parameter");
    const NodeEntry own = example.MatMul(n + "_own", x, w);
    branches.push_back(example.MatMul(n + "_shared", own, shared));
  }
  example.Head(example.Elementwise("sum", branches, "add"), "output");
  const CoarseGraph coarse = Coarsen(&example);
  const Graph& graph = example.graph();
  EXPECT_EQ(OpClassOf(graph, coarse, "left_shared"),
            OpClassOf(graph, coarse, "right_shared"));
  EXPECT_NE(TensorClassOf(graph, coarse, "left_w"),
            TensorClassOf(graph, coarse, "right_w"));
  EXPECT_NE(OpClassOf(graph, coarse, "left_own"), OpClassOf(graph, coarse, "right_own"));
}

TEST(Coalesce, OperatorsOfOtherShapesAreNotMerged) {
  ExampleGraph example;
  const NodeEntry w = example.Variable("w", {6, 6}, "parameter");
  const NodeEntry a = example.MatMul("a", example.Variable("x", {4, 6}, "data"), w);
  const NodeEntry b = example.MatMul("b", example.Variable("y", {8, 6}, "data"), w);
  example.Head(a, "output");
  example.Head(b, "output");
  const CoarseGraph coarse = Coarsen(&example);
  EXPECT_NE(OpClassOf(example.graph(), coarse, "a"),
            OpClassOf(example.graph(), coarse, "b"));
}

TEST(Coalesce, EveryTensorOfAClassHasItsShapeAndEveryOperatorItsSlots) {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    ExampleGraph example = RandomGraph(seed, 12);
    const Graph& graph = example.graph();
    const CoarseGraph coarse = Coarsen(&example);
    for (const TensorClass& tensor : coarse.tensors) {
      for (int entry : tensor.entries) ASSERT_EQ(graph.shapes[entry], tensor.shape);
    }
    for (const OpClass& op : coarse.operators) {
      for (int node : op.nodes) {
        for (const OpSlot& slot : op.slots) {
          if (op.elementwise) continue;
          const NodeEntry entry = slot.is_output ? NodeEntry{node, slot.index}
                                                 : graph.nodes[node].inputs[slot.index];
          ASSERT_EQ(coarse.tensor_class[graph.entry_id(entry)], slot.tensor_class)
              << "seed " << seed;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tofu
