#include "passes/search/recursion/search_tables.h"

#include <gtest/gtest.h>

#include <memory>

#include "graph/box.h"
#include "passes/search/cost/slot_bytes.h"
#include "support/example_graphs.h"
#include "support/recount.h"

namespace tofu {
namespace {

constexpr size_t kLimit = 1000;

// A graph with its classes, and tables that may leave some tensors whole.
struct Tables {
  explicit Tables(ExampleGraph from, const std::vector<int>& parts_of_steps,
                  const std::vector<std::string>& whole = {},
                  size_t ordered = Cuts::kMaxSteps)
      : example(std::move(from)),
        graph(example.graph()),
        coarse(Coalesce(graph, example.table(),
                        GroupForwardBackward(graph, example.table()))),
        parts(parts_of_steps) {
    Restrictions restrictions;
    restrictions.may_be_whole.assign(coarse.tensors.size(), false);
    for (const std::string& name : whole) restrictions.may_be_whole[Class(name)] = true;
    model = MakeCostModel({}, graph, example.table(), coarse, parts);
    tables = std::make_unique<SearchTables>(graph, example.table(), coarse, parts,
                                            restrictions, *model, ordered);
  }

  int Node(const std::string& name) const {
    int node = 0;
    while (graph.nodes[node].name != name) ++node;
    return node;
  }
  int Class(const std::string& name) const {
    return coarse.tensor_class[graph.first_entry[Node(name)]];
  }
  Cuts Free() const { return Cuts(parts.size(), kFree); }
  const TensorChoices* Tensor(const std::string& name) {
    return tables->Tensor(Class(name), Free(), kLimit);
  }

  ExampleGraph example;
  const Graph graph;
  const CoarseGraph coarse;
  const std::vector<int> parts;
  std::unique_ptr<const CostModel> model;
  std::unique_ptr<SearchTables> tables;
};

// float32 times float64 gives float16.
ExampleGraph MixedDtypes() {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6});
  example.SetDtype(1);
  const NodeEntry w = example.Variable("w", {6, 8});
  example.SetDtype(2);
  example.Head(example.MatMul("y", x, w), "output");
  return example;
}

// The bytes of one choice, according to the tables and to the oracle.
void ExpectRecounted(Tables* t, int op_class) {
  const OpClass& op = t->coarse.operators[op_class];
  std::vector<const TensorChoices*> tensors;
  for (size_t c = 0; c < t->coarse.tensors.size(); ++c) {
    tensors.push_back(t->tables->Tensor(static_cast<int>(c), t->Free(), kLimit));
  }
  const OperatorChoices* choices =
      t->tables->Operator(op_class, t->Free(), tensors, kLimit);
  Plan plan;
  plan.parts = t->parts;
  plan.tensor_cuts.assign(t->graph.shapes.size(), Cuts(t->parts.size(), kReplicated));
  plan.op_cuts.assign(t->graph.nodes.size(), Cuts(t->parts.size(), kReplicated));
  for (size_t s = 0; s < choices->alternatives.size(); ++s) {
    for (int node : op.nodes) plan.op_cuts[node] = choices->alternatives[s];
    int64_t expected = 0;
    for (size_t i = 0; i < choices->slots.size(); ++i) {
      const int c = op.slots[choices->slots[i]].tensor_class;
      for (int entry : t->coarse.tensors[c].entries) {
        plan.tensor_cuts[entry] = tensors[c]->alternatives.back();
      }
      const size_t count = tensors[c]->alternatives.size();
      expected += choices->matrices[i].vector()[s * count + count - 1];
    }
    int64_t bytes = 0;
    for (int node : op.nodes) {
      bytes +=
          RecountNode(t->graph, t->example.table(), plan, ReadTensors(t->graph), node);
    }
    EXPECT_EQ(bytes, expected) << "alternative " << s;
  }
}

TEST(SearchTables, EverySlotCountsTheBytesOfItsOwnDtype) {
  for (const std::vector<int>& parts : {std::vector<int>{2}, {2, 2}}) {
    Tables t(MixedDtypes(), parts);
    ASSERT_EQ(t.coarse.operators.size(), 1u);
    ExpectRecounted(&t, 0);
  }
}

TEST(SearchTables, AClassCountsAllOfItsOperators) {
  Tables t(UnrolledRnn(4, 6, 3), {2});
  for (size_t p = 0; p < t.coarse.operators.size(); ++p) {
    if (t.coarse.operators[p].elementwise) continue;
    SCOPED_TRACE(t.graph.nodes[t.coarse.operators[p].nodes[0]].name);
    ExpectRecounted(&t, static_cast<int>(p));
  }
}

TEST(SearchTables, EqualShapesShareTheirChoicesUnlessOnlyOneMayBeWhole) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 4});
  const NodeEntry v = example.Variable("v", {4, 4});
  const NodeEntry w = example.Variable("w", {4, 4});
  example.Head(example.MatMul("y", example.MatMul("xv", x, v), w), "output");
  Tables t(example, {2}, {"w"});
  EXPECT_EQ(t.Tensor("x"), t.Tensor("v"));
  EXPECT_NE(t.Tensor("x"), t.Tensor("w"));
  EXPECT_EQ(t.Tensor("x")->alternatives, (std::vector<Cuts>{{0}, {1}}));
  EXPECT_EQ(t.Tensor("w")->alternatives, (std::vector<Cuts>{{0}, {1}, {kReplicated}}));
}

TEST(SearchTables, MoreAlternativesThanTheLimitAreRefusedEachTime) {
  Tables t(MixedDtypes(), {2, 2});
  const int x = t.Class("x");
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(t.tables->Tensor(x, t.Free(), 2), nullptr);
  }
  ASSERT_NE(t.tables->Tensor(x, t.Free(), 4), nullptr);
  EXPECT_EQ(t.tables->Tensor(x, t.Free(), 4)->alternatives.size(), 3u);
  EXPECT_EQ(t.tables->Tensor(x, t.Free(), 2), nullptr) << "although they are known";
}

// Each tensor has two cuts, the product three splits.
TEST(SearchTables, AsManyAlternativesAsTheLimitAreGivenEachTime) {
  Tables t(MixedDtypes(), {2});
  const std::vector<const TensorChoices*> tensors = {t.Tensor("x"), t.Tensor("w"),
                                                     t.Tensor("y")};
  for (int time = 0; time < 2; ++time) {
    EXPECT_NE(t.tables->Tensor(t.Class("x"), t.Free(), 2), nullptr);
    EXPECT_EQ(t.tables->Tensor(t.Class("x"), t.Free(), 1), nullptr);
    EXPECT_NE(t.tables->Operator(0, t.Free(), tensors, 3), nullptr);
    EXPECT_EQ(t.tables->Operator(0, t.Free(), tensors, 2), nullptr);
  }
}

// Both tensors are cut by rows: split by rows, the operator fetches nothing; by columns,
// it fetches halos.
TEST(SearchTables, AnAlternativeThatIsNeverCheaperIsDropped) {
  ExampleGraph example;
  example.Head(example.Window("y", example.Variable("x", {4, 10}), 3, 1), "output");
  Tables t(example, {2});
  const Cuts rows = {0};
  const std::vector<const TensorChoices*> by_rows = {
      t.tables->Tensor(t.Class("x"), rows, kLimit),
      t.tables->Tensor(t.Class("y"), rows, kLimit)};
  EXPECT_EQ(t.tables->Operator(0, t.Free(), by_rows, kLimit)->alternatives,
            (std::vector<Cuts>{{0}}));
  const std::vector<const TensorChoices*> any = {t.Tensor("x"), t.Tensor("y")};
  EXPECT_EQ(t.tables->Operator(0, t.Free(), any, kLimit)->alternatives,
            (std::vector<Cuts>{{0}, {1}}));
}

// Between two whole tensors rows and columns cost the same.
TEST(SearchTables, OfAlternativesThatCostTheSameTheFirstStays) {
  ExampleGraph example;
  example.Head(example.Window("y", example.Variable("x", {4, 4}), 1, 1), "output");
  Tables t(example, {2});
  const TensorChoices* whole = t.tables->Tensor(t.Class("x"), Cuts{kReplicated}, kLimit);
  const OperatorChoices* choices =
      t.tables->Operator(0, t.Free(), {whole, whole}, kLimit);
  EXPECT_EQ(choices->alternatives, (std::vector<Cuts>{{0}}));
  EXPECT_EQ(choices->matrices[0].vector(), std::vector<int64_t>{16 * 4});
}

TEST(SearchTables, CellsAreToBeFilledUntilTheyAre) {
  Tables t(MixedDtypes(), {2});
  const std::vector<const TensorChoices*> tensors = {t.Tensor("x"), t.Tensor("w"),
                                                     t.Tensor("y")};
  const auto cells = [&](int64_t enough) {
    return t.tables->CellsToFill({t.Free()}, tensors, kLimit, enough);
  };
  // Three splits, and three tensors of two cuts.
  EXPECT_EQ(cells(100), 3 * (2 + 2 + 2));
  EXPECT_EQ(t.tables->CellsToFill({t.Free()}, tensors, 2, 100), 100) << "too many splits";
  t.tables->Operator(0, t.Free(), tensors, kLimit);
  EXPECT_EQ(cells(100), 0);
}

// A product of odd sizes over two halvings, of which none is ordered.
struct Profiles {
  Tables t = Tables(OneProduct(), {2, 2}, {}, 0);

  static ExampleGraph OneProduct() {
    ExampleGraph example;
    const NodeEntry x = example.Variable("x", {7, 15});
    example.Head(example.MatMul("y", x, example.Variable("w", {15, 11})), "output");
    return example;
  }
  std::vector<const TensorChoices*> Tensors(const SearchTables::Given& given) {
    std::vector<const TensorChoices*> tensors;
    for (const char* name : {"x", "w", "y"}) {
      tensors.push_back(t.tables->Tensor(t.Class(name), given, kLimit));
    }
    return tensors;
  }
  int64_t CellsToFill(const SearchTables::Given& given) {
    return t.tables->CellsToFill({given}, Tensors(given), kLimit, kLimit);
  }
  const OperatorChoices* Operator(const SearchTables::Given& given) {
    return t.tables->Operator(0, given, Tensors(given), kLimit);
  }
};

TEST(SearchTables, WhereProfilesAreToldApartTheOthersKeepTheirCells) {
  const std::vector<Cuts> exact = {{0, 1}};
  Profiles known;
  const SearchTables::Given profiles(known.t.Free());
  const SearchTables::Given refined(known.t.Free(), {}, &exact);
  // The operator has six profiles, each tensor three. Told apart, {0, 1} has two orders;
  // profiles that cut the same twice have one, so the operator keeps two profiles, and
  // the tensors keep none.
  EXPECT_EQ(known.CellsToFill(profiles), 6 * 3 * 3);
  known.Operator(profiles);
  Profiles anew;
  EXPECT_EQ(known.CellsToFill(refined), anew.CellsToFill(refined));
  const std::vector<Cuts> one = {};
  const SearchTables::Given of_one_order(known.t.Free(), {}, &one);
  EXPECT_LT(known.CellsToFill(of_one_order), anew.CellsToFill(of_one_order));
  for (const SearchTables::Given& given : {refined, of_one_order}) {
    const OperatorChoices* kept = known.Operator(given);
    const OperatorChoices* filled = anew.Operator(given);
    EXPECT_EQ(kept->alternatives, filled->alternatives);
    ASSERT_EQ(kept->matrices.size(), filled->matrices.size());
    for (size_t i = 0; i < kept->matrices.size(); ++i) {
      EXPECT_EQ(kept->matrices[i].vector(), filled->matrices[i].vector());
    }
  }
}

TEST(SearchTables, ARandomElementwiseOperatorCostsWhatTheOthersOfAWholeStepFetch) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 4});
  example.Head(example.Dropout("y", x), "output");
  Tables t(example, {2}, {"x"});
  EXPECT_TRUE(t.tables->HasCosts(0));
  const std::vector<const TensorChoices*> tensors = {t.Tensor("x")};
  const OperatorChoices* choices = t.tables->Operator(0, t.Free(), tensors, kLimit);
  EXPECT_EQ(choices->matrices[0].vector(), (std::vector<int64_t>{0, 0, 16 * 4}));
}

TEST(SearchTables, ElementwiseCutsAreAlongTheVariablesOfTheDimensions) {
  ExampleGraph example;
  example.Head(example.Elementwise("y", {example.Variable("x", {4, 4})}), "output");
  StrategyRow row = *example.table().row(1);
  std::swap(row.vars[0], row.vars[1]);
  for (std::vector<DimAccess>* dims : {&row.inputs[0].dims, &row.outputs[0].dims}) {
    std::swap((*dims)[0], (*dims)[1]);
  }
  EXPECT_EQ(ElementwiseCuts(row, {0, kReplicated, 1}), (Cuts{1, kReplicated, 0}));
}

}  // namespace
}  // namespace tofu
