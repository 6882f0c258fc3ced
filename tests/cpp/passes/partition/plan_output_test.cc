#include "passes/partition/plan_output.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

// The fetches of the product of x (rows x 8) and w (8 x columns), split by `op_cuts`,
// into tiles with `tensor_cuts`.
OutputFetches Product(int64_t rows, int64_t columns, const std::vector<int>& parts,
                      const std::vector<int>& op_cuts,
                      const std::vector<int>& tensor_cuts) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {rows, 8});
  example.Head(example.MatMul("y", x, example.Variable("w", {8, columns})), "output");
  Plan plan;
  plan.parts = parts;
  plan.tensor_cuts.assign(3, std::vector<int>(parts.size(), kReplicated));
  plan.tensor_cuts[2] = tensor_cuts;
  plan.op_cuts.assign(3, std::vector<int>(parts.size(), kReplicated));
  plan.op_cuts[2] = op_cuts;
  const Graph& graph = example.graph();
  return PlanOutput(graph, plan, {2, 0}, OperatorParts(graph, example.table(), plan, 2),
                    ReductionOf(graph, example.table(), plan, 2, 0),
                    EntryTiles(graph, plan, 2));
}

// The moves of a route of the product of x (8 x 8) and w (8 x 8). Four workers on two
// hosts split it along the summed dimension, and all need it whole.
std::vector<std::vector<FetchSpec>> Routed(const std::vector<TileSplits>& partial,
                                           const std::vector<TileSplits>& stops,
                                           const std::vector<int>& op_cuts = {2, 2},
                                           int64_t rows = 8) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {rows, 8});
  example.Head(example.MatMul("y", x, example.Variable("w", {8, 8})), "output");
  Plan plan;
  plan.parts = {2, 2};
  plan.tensor_cuts.assign(3, std::vector<int>(2, kReplicated));
  plan.op_cuts.assign(3, std::vector<int>(2, kReplicated));
  plan.op_cuts[2] = op_cuts;
  const Graph& graph = example.graph();
  return PlanOutputRoute(
      graph, plan, {2, 0, partial, stops}, OperatorParts(graph, example.table(), plan, 2),
      ReductionOf(graph, example.table(), plan, 2, 0), EntryTiles(graph, plan, 2));
}

std::string ErrorOfRoute(const std::vector<TileSplits>& partial,
                         const std::vector<TileSplits>& stops,
                         const std::vector<int>& op_cuts = {2, 2}, int64_t rows = 8) {
  try {
    Routed(partial, stops, op_cuts, rows);
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kPlan);
    return error.what();
  }
  return "no error";
}

int64_t Elements(const std::vector<FetchSpec>& specs) {
  int64_t sum = 0;
  for (const FetchSpec& spec : specs) sum += FetchedElements(spec);
  return sum;
}

TEST(PlanOutput, ASumThatAllNeedIsReducedInPiecesAndGathered) {
  const OutputFetches fetches = Product(8, 6, {4}, {2}, {kReplicated});
  ASSERT_EQ(fetches.first.size(), 4u);
  ASSERT_EQ(fetches.gather.size(), 4u);
  for (int w = 0; w < 4; ++w) {
    EXPECT_EQ(fetches.first[w].region, (Box{{2 * w, 0}, {2 * w + 2, 6}}));
    EXPECT_EQ(fetches.first[w].num_terms, 4);
    EXPECT_EQ(fetches.gather[w].region, (Box{{0, 0}, {8, 6}}));
    EXPECT_EQ(fetches.gather[w].num_terms, 1);
    EXPECT_EQ(fetches.gather[w].pieces.size(), 4u);
  }
  EXPECT_EQ(Elements(fetches.first), 3 * 48);
  EXPECT_EQ(Elements(fetches.gather), 3 * 48);
}

// A worker adds up its host's terms of half of the 64 elements, and then both hosts'
// terms of a quarter; it gathers one half from the other host, and the other within its
// own.
TEST(PlanOutput, AHostAddsUpItsTermsFirst) {
  const auto moves = Routed({{{1, 0}}}, {{{1, 0}, {0, 0}}, {{1, 0}}});
  ASSERT_EQ(moves.size(), 4u);
  std::vector<int64_t> elements;
  for (const std::vector<FetchSpec>& move : moves) {
    elements.push_back(Elements(move));
    for (const FetchSpec& spec : move) {
      for (const FetchPiece& piece : spec.pieces) {
        const bool is_same_host = piece.source / 2 == spec.worker / 2;
        const bool is_peer = piece.source % 2 == spec.worker % 2;
        EXPECT_TRUE(is_same_host || is_peer) << piece.source << " to " << spec.worker;
      }
    }
  }
  EXPECT_EQ(elements, (std::vector<int64_t>{4 * 32, 4 * 16, 4 * 16, 4 * 32}));
  EXPECT_EQ(moves[0][1].num_terms, 2);
  EXPECT_EQ(moves[0][1].region, (Box{{4, 0}, {8, 8}}));
  EXPECT_EQ(moves[1][1].num_terms, 2);
  EXPECT_EQ(moves[1][1].region, (Box{{4, 0}, {6, 8}}));
  EXPECT_EQ(moves[2][1].num_terms, 1);
  EXPECT_EQ(moves[3][1].region, (Box{{0, 0}, {8, 8}}));
}

TEST(PlanOutput, TilesAreMadeOfPartialSumsWithoutOtherStops) {
  const auto moves = Routed({{{1, 1}}}, {});
  ASSERT_EQ(moves.size(), 2u);
  EXPECT_EQ(moves[1][3].region, (Box{{0, 0}, {8, 8}}));
  EXPECT_EQ(moves[1][3].num_terms, 2);
  EXPECT_EQ(moves[1][3].pieces.size(), 4u);
}

TEST(PlanOutput, RoutesThatDoNotFitAreTheFaultOfThePlan) {
  EXPECT_NE(ErrorOfRoute({{{1, 0}}}, {}, {2, 0})
                .find("plan: the route of y/out0 has a sum of what is no term"),
            std::string::npos);
  EXPECT_NE(ErrorOfRoute({{{1, 0}}, {{0, 0}}}, {})
                .find("a stop that does not divide another one"),
            std::string::npos);
  EXPECT_NE(ErrorOfRoute({}, {{{1, 0}}, {{0, 0}}})
                .find("a stop that does not divide another one"),
            std::string::npos);
  EXPECT_NE(ErrorOfRoute({{{1, 0}}}, {}, {2, 2}, 1)
                .find("a stop along a dimension with too few elements"),
            std::string::npos);
}

TEST(PlanOutput, PiecesLieAlongADimensionThatDividesIfThereIsOne) {
  const OutputFetches fetches = Product(3, 8, {4}, {2}, {kReplicated});
  ASSERT_EQ(fetches.gather.size(), 4u);
  EXPECT_EQ(fetches.first[1].region, (Box{{0, 2}, {3, 4}}));
}

TEST(PlanOutput, PiecesOfASumThatDoesNotDivideDifferByOneElement) {
  const OutputFetches fetches = Product(3, 5, {4}, {2}, {kReplicated});
  ASSERT_EQ(fetches.gather.size(), 4u);
  EXPECT_EQ(fetches.first[0].region, (Box{{0, 0}, {3, 2}}));
  EXPECT_EQ(fetches.first[3].region, (Box{{0, 4}, {3, 5}}));
  EXPECT_EQ(Elements(fetches.first) + Elements(fetches.gather), 2 * 3 * 15);
}

TEST(PlanOutput, ASumOfTooFewElementsIsReducedByAll) {
  const OutputFetches fetches = Product(3, 1, {4}, {2}, {kReplicated});
  EXPECT_TRUE(fetches.gather.empty());
  EXPECT_EQ(Elements(fetches.first), 4 * 3 * 3);
}

// Two workers would fetch as much in pieces, with more operators.
TEST(PlanOutput, OverTwoWorkersEachFetchesTheOthersTerm) {
  EXPECT_TRUE(Product(8, 6, {2}, {2}, {kReplicated}).gather.empty());
}

TEST(PlanOutput, WhatEachWorkerOwnsAPieceOfIsReducedOnce) {
  const OutputFetches fetches = Product(8, 6, {4}, {2}, {0});
  EXPECT_TRUE(fetches.gather.empty());
  EXPECT_EQ(Elements(fetches.first), 3 * 48);
}

TEST(PlanOutput, WhatIsNotReducedIsOnlyGathered) {
  const OutputFetches fetches = Product(8, 6, {4}, {0}, {kReplicated});
  EXPECT_TRUE(fetches.gather.empty());
  EXPECT_EQ(Elements(fetches.first), 3 * 48);
}

// Workers 0 and 1 hold one term of the whole output, 2 and 3 the other; the step that
// cuts the tile is not the one that reduces.
TEST(PlanOutput, OnlyWorkersWithTheSameTileShareItsReduction) {
  const OutputFetches fetches = Product(8, 6, {2, 2}, {2, 2}, {kReplicated, 0});
  ASSERT_EQ(fetches.gather.size(), 4u);
  EXPECT_EQ(fetches.gather[1].region, (Box{{4, 0}, {8, 6}}));
  EXPECT_EQ(fetches.first[1].region, (Box{{4, 0}, {6, 6}}));
  EXPECT_EQ(fetches.first[3].region, (Box{{6, 0}, {8, 6}}));
  // Each of four reduces a quarter of three other terms, and gathers another quarter.
  EXPECT_EQ(Elements(fetches.first), 4 * 3 * 12);
  EXPECT_EQ(Elements(fetches.gather), 4 * 12);
}

}  // namespace
}  // namespace tofu
