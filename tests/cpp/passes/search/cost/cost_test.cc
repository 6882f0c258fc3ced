#include "passes/search/cost/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "graph/box.h"
#include "graph/plan.h"
#include "support/example_graphs.h"
#include "support/recount.h"

namespace tofu {
namespace {

TEST(Cost, TileBoxesAreTheTilesOfEveryGroup) {
  const std::vector<int> parts = {3, 2, 2};
  const Shape shape = {24, 5, 4};
  const Cuts cuts = {0, kReplicated, 0};
  const GroupBoxes boxes = TileBoxes(shape, cuts, parts);
  ASSERT_EQ(boxes.groups(), 12);
  EXPECT_EQ(boxes.dims[0].steps, 0b101U);
  EXPECT_EQ(boxes.dims[1].steps, 0U);
  for (int g = 0; g < boxes.groups(); ++g) {
    const std::vector<int> digits = WorkerDigits(g, parts);
    const Box tile = TileBox(shape, cuts, parts, digits);
    const int i = digits[0] * 2 + digits[2];
    EXPECT_EQ(boxes.dims[0].begin[i], tile.begin[0]) << g;
    EXPECT_EQ(boxes.dims[0].end[i], tile.end[0]) << g;
  }
  EXPECT_EQ(boxes.volume, 24 * 5 * 4 * 2) << "every element is there twice";
}

TEST(Cost, OverlapOfRowsAndColumns) {
  const GroupBoxes rows = TileBoxes({8, 8}, {0}, {4});
  const GroupBoxes columns = TileBoxes({8, 8}, {1}, {4});
  EXPECT_EQ(SumOverlap(rows, rows), 64);
  EXPECT_EQ(SumOverlap(rows, columns), 16);
}

// The design's table: the cost of a tensor of S elements over k parts.
class OneTensor : public testing::TestWithParam<int> {
 protected:
  static constexpr int64_t kSize = 24 * 24;
};

TEST_P(OneTensor, NeededWholeOrCutOtherwiseOrAsOwned) {
  const int k = GetParam();
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {24, 24});
  example.Head(example.MatMul("y", x, example.Variable("w", {24, 24})), "output");
  const auto input = [&](int var, int cut) {
    return OperatorRegions(example.graph(), example.table(), 2, {var}, {k})
        .InputElements(0, TileBoxes({24, 24}, {cut}, {k}));
  };
  EXPECT_EQ(input(1, 0), (k - 1) * kSize) << "needed whole";
  EXPECT_EQ(input(0, 1), kSize * (k - 1) / k) << "needed by rows, owned by columns";
  EXPECT_EQ(input(0, 0), 0) << "needed as owned";
  const OperatorRegions reduced(example.graph(), example.table(), 2, {2}, {k});
  EXPECT_EQ(reduced.OutputElements(0, TileBoxes({24, 24}, {0}, {k})), (k - 1) * kSize);
}

// Workers that all need a sum reduce a piece each and gather the others, if some
// dimension has an element for each piece.
TEST_P(OneTensor, ReducedAndNeededWhole) {
  const int k = GetParam();
  const auto output = [&](int64_t rows, int64_t columns) {
    ExampleGraph example;
    const NodeEntry x = example.Variable("x", {rows, 24});
    example.Head(example.MatMul("y", x, example.Variable("w", {24, columns})), "output");
    const OperatorRegions reduced(example.graph(), example.table(), 2, {2}, {k});
    Plan plan;
    plan.parts = {k};
    plan.tensor_cuts = {{1}, {0}, {kReplicated}};
    plan.op_cuts = {{kReplicated}, {kReplicated}, {2}};
    const int64_t elements =
        reduced.OutputElements(0, TileBoxes({rows, columns}, {kReplicated}, {k}));
    EXPECT_EQ(Recount(example.graph(), example.table(), plan), elements * 4);
    return elements;
  };
  EXPECT_EQ(output(24, 24), 2 * (k - 1) * kSize);
  EXPECT_EQ(output(5, 24), 2 * (k - 1) * 5 * 24);
  EXPECT_EQ(output(24, 5), 2 * (k - 1) * 5 * 24);
  EXPECT_EQ(output(5, 7), k <= 7 ? 2 * (k - 1) * 5 * 7 : k * (k - 1) * 5 * 7)
      << "in pieces where there is an element for each worker";
}

INSTANTIATE_TEST_SUITE_P(Parts, OneTensor, testing::Values(2, 3, 4, 6, 8));

TEST(Cost, AHaloIsTheOverlap) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {1, 10});
  example.Head(example.Window("y", x, 3, 1), "output");
  const OperatorRegions regions(example.graph(), example.table(), 1, {1}, {2});
  // Outputs [0, 4) and [4, 8) need [0, 6) and [4, 10); the tiles are [0, 5) and [5, 10).
  EXPECT_EQ(regions.InputElements(0, TileBoxes({1, 10}, {1}, {2})), 2);
}

// y[i] reads x[(2 - i) / 2], both over 6 elements: indices above 2 read elements before
// x, as (2 - 3) / 2 is -1 rounded down.
TEST(Cost, IndicesBelowZeroAreRoundedDown) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {6});
  example.Head(example.Elementwise("y", {x}), "output");
  StrategyTable table = example.table();
  table.rows[0].inputs[0].dims[0] = {
      false, {{{0, true, -1}}, 2, 2}, {{{0, false, -1}}, 2, 2}};
  const OperatorRegions regions(example.graph(), table, 1, {0}, {2});
  EXPECT_EQ(regions.InputElements(0, TileBoxes({6}, {0}, {2})), 0)
      << "the first part has what it reads, the second reads nothing";
  Plan plan;
  plan.parts = {2};
  plan.tensor_cuts = {{0}, {0}};
  plan.op_cuts = {{kReplicated}, {0}};
  EXPECT_EQ(Recount(example.graph(), table, plan), 0);
}

// With padding, the region of a part is exact in every dimension, clipped to the tensor.
TEST(Cost, APaddedPartFetchesOnlyElementsThatExist) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {1, 8});
  example.Head(example.Window("y", x, 3, 1, /*pad=*/1), "output");
  const OperatorRegions regions(example.graph(), example.table(), 1, {1}, {2});
  // Outputs [0, 4) and [4, 8) need [-1, 5) and [3, 9); the tiles are [0, 4) and [4, 8).
  EXPECT_EQ(regions.InputElements(0, TileBoxes({1, 8}, {1}, {2})), 2);
}

// Windows of two at stride two leave out the last of seven columns. An operator that pads
// gets only the elements that it reads, so the last column is not fetched.
TEST(Cost, APaddedPartFetchesNoElementsThatItSkips) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {7, 7});
  example.Head(example.Window("y", x, 2, 2), "output");
  StrategyTable table = example.table();
  Plan plan;
  plan.parts = {7};
  plan.tensor_cuts = {{1}, {0}};
  plan.op_cuts = {{kReplicated}, {0}};
  const auto input = [&] {
    return OperatorRegions(example.graph(), table, 1, {0}, {7})
        .InputElements(0, TileBoxes({7, 7}, {1}, {7}));
  };
  EXPECT_EQ(input(), 7 * 6) << "a row of seven, of which one is its own";
  EXPECT_EQ(Recount(example.graph(), table, plan), 7 * 6 * 4);
  table.rows[0].inputs[0].pad = Padding{{0}, "0"};
  EXPECT_EQ(input(), 6 * 5 + 6);
  EXPECT_EQ(Recount(example.graph(), table, plan), (6 * 5 + 6) * 4);
}

TEST(Cost, EveryReductionOfAStepAddsItsParts) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6});
  example.Head(example.ReduceRows("y", x, Reducer::kMax), "output");
  const auto output = [&](const Cuts& cuts) {
    return OperatorRegions(example.graph(), example.table(), 1, cuts, {2, 3})
        .OutputElements(0, TileBoxes({6}, {0, kReplicated}, {2, 3}));
  };
  // Tiles of 3 elements on 6 workers; a worker does not fetch its own elements.
  EXPECT_EQ(output({0, kReplicated}), 2 * 18 - 18);
  // Each reduces a third of its tile, of which two workers have made their own term.
  EXPECT_EQ(output({0, 1}), 2 * 6 - 2 + 12);
  EXPECT_EQ(output({kReplicated, 1}), 18 - 6);
}

// Four workers add two terms of a 4 x 4 product, which all need whole. Each has made half
// of a term.
TEST(Cost, APieceLiesWithinWhatItsWorkerHasMade) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 4});
  example.Head(example.MatMul("y", x, example.Variable("w", {4, 4})), "output");
  for (int split : {0, 1}) {
    const OperatorRegions regions(example.graph(), example.table(), 2, {2, split},
                                  {2, 2});
    const GroupBoxes whole = TileBoxes({4, 4}, {kReplicated, kReplicated}, {2, 2});
    EXPECT_EQ(regions.OutputElements(0, whole), 4 * (2 * 4 - 4 + 12)) << split;
  }
}

// The recount goes element by element and worker by worker.
TEST(Cost, OverlapsWithinGroupsAreThoseOfTheirWorkers) {
  const std::vector<int> parts = {2, 3, 2};
  const std::vector<Cuts> all = {{0, 0, 0},
                                 {kReplicated, 0, 1},
                                 {1, kReplicated, 0},
                                 {0, 1, kReplicated},
                                 {kReplicated, kReplicated, kReplicated}};
  const Shape shape = {12, 12};
  for (const Cuts& a : all) {
    for (const Cuts& b : all) {
      for (size_t steps = 0; steps <= parts.size(); ++steps) {
        int64_t elements = 0;
        int64_t boxes = 0;
        for (int reader = 0; reader < 12; ++reader) {
          const std::vector<int> of_reader = WorkerDigits(reader, parts);
          for (int holder = 0; holder < 12; ++holder) {
            const std::vector<int> digits = WorkerDigits(holder, parts);
            bool counts = true;
            for (size_t step = 0; step < parts.size(); ++step) {
              if (step < steps && digits[step] != of_reader[step]) counts = false;
              if (step >= steps && b[step] == kReplicated && digits[step] != 0)
                counts = false;
            }
            if (!counts) continue;
            const int64_t shared = Intersect(TileBox(shape, a, parts, of_reader),
                                             TileBox(shape, b, parts, digits))
                                       .Volume();
            elements += shared;
            boxes += shared > 0 ? 1 : 0;
          }
        }
        const GroupBoxes readers = TileBoxes(shape, a, parts);
        const GroupBoxes holders = TileBoxes(shape, b, parts);
        const Shape one = {1, 1};
        EXPECT_EQ(SumOverlapWithin(readers, holders, steps), elements);
        EXPECT_EQ(SumOverlapWithin(readers, holders, steps, &one), boxes);
      }
    }
  }
}

// Compares every cut of three halvings, of the product and of its output, which may wait.
TEST(Cost, TheLeastOfAnOutputHoldsForEveryOrderOfTheSteps) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {8, 8});
  example.Head(example.MatMul("y", x, example.Variable("w", {8, 8})), "output");
  const std::vector<int> parts = {2, 2, 2};
  std::vector<Cuts> all;
  for (int i = 0; i < 27; ++i) all.push_back({i / 9, i / 3 % 3, i % 3});
  std::vector<Cuts> all_of_tensor;
  for (int i = 0; i < 64; ++i) all_of_tensor.push_back({i / 16, i / 4 % 4, i % 4});
  const auto tensor_cuts = [](Cuts cuts) {
    std::replace(cuts.begin(), cuts.end(), 2, kReplicated);
    std::replace(cuts.begin(), cuts.end(), 3, kTerms);
    return cuts;
  };
  int reached = 0;
  for (const Cuts& op : all) {
    const OperatorRegions last(example.graph(), example.table(), 2, op, parts);
    TileOverlap overlap(last.Boxes(true, 0));
    for (const Cuts& tensor : all_of_tensor) {
      const GroupBoxes tiles = TileBoxes({8, 8}, tensor_cuts(tensor), parts);
      StepSet whole = 0;
      int64_t terms = 1;
      for (size_t i = 0; i < 3; ++i) {
        if (tensor[i] == 2) whole |= StepSet{1} << i;
        if (tensor[i] == 3) terms *= 2;
      }
      const TileGrid grid({8, 8}, tensor_cuts(tensor), parts);
      const int64_t least = last.LeastOutputElements(
          0, grid, {tiles.volume, whole, terms}, overlap.Most(grid), &overlap);
      int64_t best = std::numeric_limits<int64_t>::max();
      Cuts order = tensor;
      std::sort(order.begin(), order.end());
      do {
        best = std::min(
            best, last.OutputElements(0, TileBoxes({8, 8}, tensor_cuts(order), parts)));
      } while (std::next_permutation(order.begin(), order.end()));
      ASSERT_LE(least, best);
      if (last.Reduces(0) != 0 && terms == 1) {
        ASSERT_LE(last.LeastSumElements(0, tiles.volume, whole), best);
      }
      reached += least == best ? 1 : 0;
    }
  }
  EXPECT_GT(reached, 800) << "of 1,728";
}

// The sum of two tensors that may wait, to be read by an operator that may add terms.
TEST(Cost, TheLeastOfTermsHoldsForEveryOrderOfTheSteps) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {8, 8});
  const NodeEntry y = example.Elementwise("y", {x});
  example.Head(example.Elementwise("z", {y, y}, "add"), "output");
  StrategyTable table = example.table();
  AddTerms(&table.rows[table.node_rows[2]]);
  const std::vector<int> parts = {2, 3, 2};
  int reached = 0;
  for (int i = 0; i < 27; ++i) {
    const Cuts op = {i / 9, i / 3 % 3, i % 3};  // 2: the terms
    const OperatorRegions last(example.graph(), table, 2, op, parts);
    TileOverlap overlap(last.Boxes(false, 0));
    for (int j = 0; j < 64; ++j) {
      Cuts tensor = {j / 16, j / 4 % 4, j % 4};
      std::replace(tensor.begin(), tensor.end(), 2, kReplicated);
      std::replace(tensor.begin(), tensor.end(), 3, kTerms);
      int64_t terms = 1;
      for (size_t step = 0; step < 3; ++step) {
        if (tensor[step] == kTerms) terms *= parts[step];
      }
      const int64_t least = last.LeastInputElements(
          0, terms, overlap.Most(TileGrid({8, 8}, tensor, parts)));
      const int64_t exact = last.InputElements(0, TileBoxes({8, 8}, tensor, parts));
      ASSERT_LE(least, exact) << i << ' ' << j;
      reached += least == exact ? 1 : 0;
    }
  }
  EXPECT_GT(reached, 400) << "of 1,728";
}

// Four workers hold terms of a product: they send nothing until the sum is reduced.
TEST(Cost, ASumThatWaitsIsReducedOnce) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {8, 8});
  const NodeEntry w = example.Variable("w", {8, 8});
  const NodeEntry a = example.MatMul("a", x, w);
  const NodeEntry b = example.MatMul("b", x, w);
  example.Head(example.Elementwise("sum", {a, b}, "add"), "output");
  StrategyTable table = example.table();
  StrategyRow& row = table.rows[table.node_rows[4]];
  AddTerms(&row);
  const int terms = row.terms;
  Plan plan;
  plan.parts = {4};
  plan.tensor_cuts = {{1}, {0}, {kTerms}, {kTerms}, {0}};
  plan.op_cuts = {{kReplicated}, {kReplicated}, {2}, {2}, {terms}};
  const auto bytes = [&](int cut, int of_sum) {
    plan.tensor_cuts[4] = {cut};
    plan.op_cuts[4] = {of_sum};
    int64_t elements = 0;
    for (int node : {2, 3, 4}) {
      const OperatorRegions regions(example.graph(), table, node, plan.op_cuts[node],
                                    plan.parts);
      const auto tiles = [&](int entry) {
        return TileBoxes({8, 8}, plan.tensor_cuts[entry], plan.parts);
      };
      elements += regions.OutputElements(0, tiles(node));
      if (node < 4) continue;
      elements += regions.InputElements(0, tiles(2)) + regions.InputElements(1, tiles(3));
    }
    EXPECT_EQ(Recount(example.graph(), table, plan), elements * 4);
    return elements;
  };
  EXPECT_EQ(bytes(0, terms), 3 * 64) << "a reduce-scatter";
  EXPECT_EQ(bytes(kReplicated, terms), 2 * 3 * 64) << "and a gather";
  EXPECT_EQ(bytes(0, 0), 2 * 3 * 64) << "rows of the sum: each of two sums is scattered";
}

TEST(Cost, OnlyTheFirstPartReadsTheBiasOfASum) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 8});
  const NodeEntry w = example.Variable("w", {8, 6});
  const NodeEntry b = example.Variable("b", {6});
  example.Head(example.Dense("y", x, w, b), "output");
  const OperatorRegions regions(example.graph(), example.table(), 3, {2}, {2});
  EXPECT_EQ(regions.InputElements(2, TileBoxes({6}, {0}, {2})), 3);
}

TEST(Cost, AnUnsplitRandomOperatorIsComputedOnce) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {6, 6});
  example.Head(example.Dropout("y", x), "output");
  const OperatorRegions regions(example.graph(), example.table(), 1, {kReplicated}, {3});
  const GroupBoxes whole = TileBoxes({6, 6}, {kReplicated}, {3});
  EXPECT_EQ(regions.InputElements(0, whole), 0);
  EXPECT_EQ(regions.OutputElements(0, whole), 2 * 36);
}

}  // namespace
}  // namespace tofu
