#include "passes/search/modes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "graph/box.h"
#include "graph/names.h"
#include "passes/search/make_plan.h"
#include "support/brute_force.h"
#include "support/example_graphs.h"
#include "support/recount.h"

namespace tofu {
namespace {

Plan PlanFor(ExampleGraph* example, const std::string& mode, int workers,
             bool allow_replication = false) {
  PlanOptions options;
  options.workers = workers;
  options.mode = mode;
  options.allow_replication = allow_replication;
  return MakePlan(example->graph(), example->table(), options);
}

std::vector<int> CutsOf(ExampleGraph* example, const Plan& plan,
                        const std::string& name) {
  return plan.tensor_cuts[FindEntry(example->graph(), name)];
}

TEST(Modes, EveryModeCostsWhatARecountFinds) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    ExampleGraph example = RandomGraph(seed, 8);
    for (const std::string& mode : SearchModes()) {
      for (int workers : {2, 6, 8}) {
        for (bool allow_replication : {false, true}) {
          const Plan plan = PlanFor(&example, mode, workers, allow_replication);
          ASSERT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan))
              << "seed " << seed << ", " << mode << ", " << workers << " workers";
          ASSERT_EQ(plan.mode, mode);
        }
      }
    }
  }
}

TEST(Modes, NoRivalIsCheaperThanThePlan) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    ExampleGraph example = RandomGraph(seed, 6);
    for (int workers : {2, 4, 8}) {
      const int64_t bytes = PlanFor(&example, "tofu", workers).total_bytes();
      for (const std::string& mode : SearchModes()) {
        // Whole weights.
        if (mode == "data-parallel" || mode == "soybean" || mode == "mesh-tensorflow" ||
            mode.rfind("zero-", 0) == 0) {
          continue;
        }
        EXPECT_GE(PlanFor(&example, mode, workers).total_bytes(), bytes)
            << "seed " << seed << ", " << mode << ", " << workers << " workers";
      }
    }
  }
}

TEST(Modes, AllRowTakesTheFirstDimensionThatDivides) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {3, 4, 8});
  example.Head(example.Elementwise("y", {x}), "output");
  const Plan plan = PlanFor(&example, "allrow-greedy", 4);
  for (const std::vector<int>& cuts : plan.tensor_cuts) {
    EXPECT_EQ(cuts, (std::vector<int>{1, 1}));
  }
}

TEST(Modes, RivalsKeepTheirRestrictions) {
  ExampleGraph example = Mlp(96, 48, 3);
  const std::vector<int> first = {0, 0, 0};
  const Plan allrow = PlanFor(&example, "allrow-greedy", 8);
  for (const std::vector<int>& cuts : allrow.tensor_cuts) EXPECT_EQ(cuts, first);
  for (const char* mode : {"equalchop", "spartan"}) {
    const Plan plan = PlanFor(&example, mode, 8);
    for (const std::vector<int>& cuts : plan.tensor_cuts) {
      EXPECT_EQ(std::count(cuts.begin(), cuts.end(), cuts[0]), 3) << mode;
    }
  }
}

TEST(Modes, WithoutOutputReductionNoOutputIsReduced) {
  ExampleGraph example = Mlp(96, 48, 3);
  const Plan plan = PlanFor(&example, "icml18", 4);
  for (int node = 0; node < example.graph().num_nodes(); ++node) {
    const StrategyRow* row = example.table().row(node);
    if (row == nullptr) continue;
    for (int cut : plan.op_cuts[node]) {
      for (const OutputAccess& output : row->outputs) {
        EXPECT_EQ(output.reduce.count(cut), 0u) << example.graph().nodes[node].name;
      }
    }
  }
}

// Two products and their gradients: each of k workers reduces a piece of the weight's
// gradient and gathers the others, 2 (k - 1) w^2 in all, and so with the bias's.
TEST(Modes, DataParallelReducesEveryGradientEverywhere) {
  constexpr int64_t kWidth = 24;
  ExampleGraph example = Mlp(96, kWidth, 2);
  for (int workers : {2, 4, 8}) {
    const Plan plan = PlanFor(&example, "data-parallel", workers);
    EXPECT_EQ(plan.total_bytes(), (kWidth * kWidth + kWidth) * 4 * 2 * 2 * (workers - 1));
    EXPECT_EQ(CutsOf(&example, plan, "fc0_weight"),
              std::vector<int>(plan.parts.size(), kReplicated));
    EXPECT_EQ(CutsOf(&example, plan, "fc0"), std::vector<int>(plan.parts.size(), 0));
  }
}

// The splits that SoyBean allows the example operators, by their names.
bool IsBasicSplit(const StrategyRow& row, int var) {
  if (row.op == "dot" || row.op == "dense" || row.elementwise) return true;
  return var == 0;  // the rows of the first tensor
}

// Brute force over SoyBean's space for one cut: tensors are cut by rows or columns, or
// whole if that is allowed; products are split in any way, other operators by rows only.
TEST(Modes, SoyBeansCutIsTheCheapestOfItsTilings) {
  constexpr int64_t kNever = int64_t{1} << 40;
  int compared = 0;
  int cheaper = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    ExampleGraph example = RandomGraph(seed, 2 + static_cast<int>(seed % 4));
    const Graph& graph = example.graph();
    const StrategyTable& table = example.table();
    const CoarseGraph coarse = Coalesce(graph, table, GroupForwardBackward(graph, table));
    const std::vector<bool> read = ReadTensors(graph);
    const NodeCost cost = [&](const Plan& plan, int node) -> int64_t {
      const StrategyRow* row = table.row(node);
      if (row == nullptr || row->elementwise) {
        return RecountNode(graph, table, plan, read, node);
      }
      const int cut = plan.op_cuts[node][0];
      const auto extent = [&](int var) {
        return VariableExtent(graph, *row, node, static_cast<size_t>(var));
      };
      const auto is_even = [&](int var) {  // 3 elements are cut unevenly
        return IsBasicSplit(*row, var) && extent(var) >= 2 && extent(var) != 3;
      };
      const auto can_be_cut = [&](int var) {
        return IsBasicSplit(*row, var) && extent(var) >= 2;
      };
      const std::vector<int>& vars = row->splittable;
      const bool any_even = std::any_of(vars.begin(), vars.end(), is_even);
      const bool any = std::any_of(vars.begin(), vars.end(), can_be_cut);
      const bool allowed = cut == kReplicated ? !any
                           : any_even         ? is_even(cut)
                                              : can_be_cut(cut);
      return allowed ? RecountNode(graph, table, plan, read, node) : kNever;
    };
    const int64_t best = BruteForceCost(
        graph, table, coarse,
        {{2}, 3000, ReplicableTensors(graph, table, coarse), true, false}, cost);
    if (best < 0 || best >= kNever) continue;
    ++compared;
    const Plan plan = PlanFor(&example, "soybean", 2);
    ASSERT_EQ(plan.total_bytes(), best) << "seed " << seed << "\n" << WriteGraph(graph);
    ASSERT_EQ(plan.lower_bound_bytes, best) << "seed " << seed;
    if (PlanFor(&example, "tofu", 2, true).total_bytes() < best) ++cheaper;
  }
  EXPECT_GE(compared, 150);
  EXPECT_GE(cheaper, 5) << "its restrictions must cost something somewhere";
}

TEST(Modes, SoyBeanCutsRowsAndColumnsOnly) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {2, 2, 16}, "data");
  const NodeEntry y = example.RowWise("y", {x});
  example.Head(example.Elementwise("z", {y}), "output");
  const Plan plan = PlanFor(&example, "soybean", 8);
  for (const std::vector<int>& cuts : plan.tensor_cuts) {
    for (int cut : cuts) EXPECT_LT(cut, 2);
  }
  const std::vector<int> cuts = CutsOf(&example, plan, "z");
  EXPECT_EQ(std::count(cuts.begin(), cuts.end(), kReplicated), 1)
      << "neither rows nor columns divide a third time";
}

// The example of SoyBean's paper: five layers of 300 units, a batch of 400, 16 devices. A
// mixture of data and model parallelism communicates less than either.
TEST(Modes, SoyBeanMixesDataAndModelParallelism) {
  ExampleGraph example = Mlp(400, 300, 5);
  const Plan plan = PlanFor(&example, "soybean", 16);
  const Plan data = PlanFor(&example, "data-parallel", 16);
  EXPECT_LT(plan.total_bytes(), data.total_bytes());
  const std::vector<int> weight = CutsOf(&example, plan, "fc2_weight");
  EXPECT_GE(std::count(weight.begin(), weight.end(), kReplicated), 1);
  EXPECT_LT(std::count(weight.begin(), weight.end(), kReplicated), 4);
}

// With a large batch, whole weights communicate least. The bound of the search must allow
// for gradients that are reduced in pieces.
TEST(Modes, ReplicationProvesThatDataParallelismIsBest) {
  for (int workers : {4, 6, 8}) {
    ExampleGraph example = Mlp(4800, 24, 2);
    const Plan rival = PlanFor(&example, "data-parallel", workers);
    PlanOptions options;
    options.workers = workers;
    options.allow_replication = true;
    const Plan plan = MakePlan(example.graph(), example.table(), options);
    EXPECT_EQ(plan.total_bytes(), rival.total_bytes());
    EXPECT_EQ(plan.lower_bound_bytes, plan.total_bytes());
    EXPECT_EQ(Recount(example.graph(), example.table(), plan), plan.total_bytes());
  }
}

// Also where parts of the batch are not about equal, such as 2, 2, 1, 1, 1, 1.
TEST(Modes, WithReplicationNoModeThatCutsTheBatchIsCheaper) {
  int uneven = 0;
  for (const int64_t batch : {4, 5, 7, 8, 10, 13, 16}) {
    for (const int workers : {2, 3, 4, 6, 7, 8, 12}) {
      if (workers > batch) continue;
      for (const int64_t width : {24, 26}) {
        ExampleGraph example = Mlp(batch, width, 2);
        const Plan plan = PlanFor(&example, "tofu", workers, true);
        EXPECT_EQ(Recount(example.graph(), example.table(), plan), plan.total_bytes());
        for (const char* mode : {"data-parallel", "zero-1", "zero-2", "zero-3"}) {
          EXPECT_LE(plan.total_bytes(), PlanFor(&example, mode, workers).total_bytes())
              << mode << ", " << batch << " samples over " << workers;
        }
        uneven += CutsEvenly(batch, workers) ? 0 : 1;
      }
    }
  }
  EXPECT_GT(uneven, 10);
}

TEST(Modes, ReplicationIsNeverDearerInOneStepAndOnlyWhenAllowed) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    ExampleGraph example = RandomGraph(seed, 6);
    const Plan plan = PlanFor(&example, "tofu", 2);
    EXPECT_LE(PlanFor(&example, "tofu", 2, true).total_bytes(), plan.total_bytes())
        << "seed " << seed;
  }
  ExampleGraph example = Mlp(1024, 8, 2);
  const Plan whole = PlanFor(&example, "tofu", 2, true);
  // The first layer's input has no gradient, so its weight is fetched only once.
  EXPECT_EQ(CutsOf(&example, whole, "fc1_weight"), std::vector<int>{kReplicated});
  EXPECT_EQ(CutsOf(&example, whole, "fc1"), std::vector<int>{0});
  EXPECT_EQ(whole.total_bytes(), PlanFor(&example, "data-parallel", 2).total_bytes());
  EXPECT_NE(CutsOf(&example, PlanFor(&example, "tofu", 2), "fc1_weight"),
            std::vector<int>{kReplicated});
}

TEST(Modes, TensorsOfElementwiseOperatorsMayStayWholeWhereTheyAreUpdatedOrHaveNoBatch) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6}, "data");
  const NodeEntry v = example.Variable("v", {6, 6}, "data");
  const NodeEntry w = example.Variable("w", {6, 6}, "parameter");
  const NodeEntry mean = example.Variable("mean", {4, 6}, "aux");
  const NodeEntry y = example.MatMul("y", example.Elementwise("x2", {x}), v);
  example.Head(y, "output");
  const NodeEntry total = example.SumRows("total", x);
  example.Head(example.Elementwise("scaled", {total}), "output");
  example.Head(example.Elementwise("new_w", {w}), "update:w");
  example.Head(example.Elementwise("new_mean", {mean}), "aux:mean");
  const Graph& graph = example.graph();
  const CoarseGraph coarse =
      Coalesce(graph, example.table(), GroupForwardBackward(graph, example.table()));
  const std::vector<bool> may = ReplicableTensors(graph, example.table(), coarse);
  const auto of = [&](NodeEntry entry) {
    return may[coarse.tensor_class[graph.entry_id(entry)]];
  };
  EXPECT_FALSE(of(x));
  EXPECT_TRUE(of(v)) << "no element-wise operator touches it";
  EXPECT_TRUE(of(y));
  EXPECT_TRUE(of(w));
  EXPECT_TRUE(of(mean));
  EXPECT_TRUE(of(total)) << "it has no batch";
}

// w has no batch, and neither have tensors made from it alone; the others of their class
// do.
TEST(Modes, DataParallelCutsAClassThatHasABatchAnywhere) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {8, 6}, "data");
  const NodeEntry w = example.Variable("w", {8, 6}, "parameter");
  example.Head(example.Elementwise("sum", {x, w}), "output");
  example.Head(example.Elementwise("w2", {w}), "output");
  const Plan plan = PlanFor(&example, "data-parallel", 2);
  for (const char* name : {"x", "w", "sum", "w2"}) {
    EXPECT_EQ(CutsOf(&example, plan, name), std::vector<int>{0}) << name;
  }
}

// b has fewer elements than a, but more bytes. So it is decided first and cut by columns,
// and only the 128 bytes of a are fetched.
TEST(Modes, TheGreedyRivalDecidesTheTensorOfTheMostBytesFirst) {
  ExampleGraph example;
  example.SetDtype(2);
  const NodeEntry a = example.Variable("a", {8, 8});
  example.SetDtype(1);
  const NodeEntry b = example.Variable("b", {8, 6});
  example.Head(example.MatMul("y", a, b), "output");
  const Plan plan = PlanFor(&example, "spartan", 2);
  EXPECT_EQ(CutsOf(&example, plan, "b"), std::vector<int>{1});
  EXPECT_EQ(plan.total_bytes(), 8 * 8 * 2);
}

// b, of the most bytes, is read by two products. It is cut by columns, for which both
// fetch 128 bytes. Decided by numbers of elements, a and c would come first: y's product
// would then sum parts, for 96 bytes, and b would suit one of the products alone.
TEST(Modes, TheGreedyRivalComparesBytesNotElements) {
  ExampleGraph example;
  example.SetDtype(1);
  const NodeEntry b = example.Variable("b", {8, 6});
  example.SetDtype(2);
  const NodeEntry a = example.Variable("a", {8, 8});
  const NodeEntry c = example.Variable("c", {8, 8});
  example.Head(example.MatMul("y", a, b), "output");
  example.SetDtype(1);
  example.Head(example.MatMul("z", c, b), "output");
  const Plan plan = PlanFor(&example, "spartan", 2);
  EXPECT_EQ(CutsOf(&example, plan, "b"), std::vector<int>{1});
  EXPECT_EQ(plan.total_bytes(), 128 + 128);
}

TEST(Modes, AnUnknownModeNamesThoseThatThereAre) {
  ExampleGraph example = Mlp(8, 8, 1);
  try {
    PlanFor(&example, "fastest", 2);
    ADD_FAILURE() << "planned";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("found mode \"fastest\", expected \"tofu\""), std::string::npos);
    EXPECT_NE(text.find("or \"mesh-tensorflow\""), std::string::npos) << text;
  }
}

TEST(Modes, FlatIsRefusedWhenItsTablesDoNotFitTheTimeLimit) {
  ExampleGraph example = Residual(512, 64, 200);
  PlanOptions options;
  options.workers = 64;
  options.mode = "flat";
  options.time_limit_s = 1e-6;
  try {
    MakePlan(example.graph(), example.table(), options);
    ADD_FAILURE() << "planned";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("a search over all 6 steps at once"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace tofu
