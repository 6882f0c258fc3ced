// Plans in which sums wait as terms, against counters and a brute force that share no
// code with the search.
#include "passes/coarsen/waiting_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "graph/box.h"
#include "graph/head_roles.h"
#include "passes/search/cost/predict.h"
#include "passes/search/make_plan.h"
#include "passes/search/modes.h"
#include "support/brute_force.h"
#include "support/example_graphs.h"
#include "support/example_time_model.h"
#include "support/recount.h"
#include "support/recount_time.h"

namespace tofu {
namespace {

constexpr unsigned kSeeds = 100;
constexpr size_t kMostPlans = 10000;

bool PassesTerms(const std::string& op) {
  return op == "add" || op == "add_n" || op == "scale";
}

// The table, whose additions and scalings pass terms through.
StrategyTable WithTerms(ExampleGraph* example) {
  const Graph& graph = example->graph();
  StrategyTable table = example->table();
  std::vector<bool> known(table.rows.size(), false);
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const int row = table.node_rows[node];
    if (row < 0 || known[row] || !PassesTerms(graph.nodes[node].op.text())) continue;
    known[row] = true;
    AddTerms(&table.rows[row]);
  }
  return table;
}

// A weight whose gradient is a sum of products, with or without scaling, decay and an
// update. Sizes vary.
ExampleGraph SharedWeight(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return random() % n; };
  constexpr int64_t kSizes[] = {1, 2, 3, 8};  // some cannot be cut
  const bool is_vector = below(2) == 0;
  const int64_t in = kSizes[below(4)];
  const int64_t out = kSizes[below(4)];
  ExampleGraph g;
  const NodeEntry w =
      g.Variable("w", is_vector ? Shape{out} : Shape{in, out}, "parameter");
  std::vector<NodeEntry> terms;
  for (unsigned t = 0; t < 2 + below(2); ++t) {
    const std::string name = std::to_string(t);
    const int64_t batch = 8 * kSizes[below(4)];
    const NodeEntry x = g.Variable("x" + name, {batch, is_vector ? out : in}, "data");
    if (is_vector) {
      terms.push_back(g.SumRows("gw" + name, x));
      continue;
    }
    const NodeEntry gy = below(2) == 0 || t == 0
                             ? g.Variable("gy" + name, {batch, out}, "data")
                             : g.MatMul("gy" + name, x, w);
    terms.push_back(g.MatMul("gw" + name, x, gy, true, false));
    if (below(4) == 0) terms.back() = g.Elementwise("s" + name, {terms.back()}, "scale");
  }
  if (below(3) == 0) terms.push_back(g.Elementwise("decay", {w}, "scale"));
  NodeEntry sum = terms[0];
  if (below(2) == 0) {
    sum = g.Elementwise("sum", terms, "add");
  } else {
    for (size_t t = 1; t < terms.size(); ++t) {
      sum = g.Elementwise("sum" + std::to_string(t), {sum, terms[t]}, "add");
    }
  }
  g.Head(sum, "gradient:w");
  if (below(2) == 0) g.Head(g.Elementwise("update", {w, sum}, "sgd"), "update:w");
  return g;
}

// The gradient of a tensor that several products read, with or without one that is no
// sum, which a product reads. Sizes vary.
ExampleGraph SharedInput(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return random() % n; };
  constexpr int64_t kSizes[] = {2, 4, 8};
  const int64_t batch = kSizes[below(3)];
  const int64_t in = kSizes[below(3)];
  ExampleGraph g;
  std::vector<NodeEntry> terms;
  if (below(2) == 0) terms.push_back(g.Variable("skipped", {batch, in}, "data"));
  for (unsigned t = 0; t < 2; ++t) {
    const std::string name = std::to_string(t);
    const int64_t out = 8 * kSizes[below(3)];
    const NodeEntry gy = g.Variable("gy" + name, {batch, out}, "data");
    const NodeEntry w = g.Variable("w" + name, {in, out}, "data");
    terms.push_back(g.MatMul("gx" + name, gy, w, false, true));
  }
  const NodeEntry sum = g.Elementwise("sum", terms, "add");
  g.Head(g.MatMul("next", sum, g.Variable("v", {in, 8}, "data")), "output");
  return g;
}

ExampleGraph Example(unsigned seed) {
  return seed % 2 == 0 ? SharedWeight(seed) : SharedInput(seed);
}

// The bytes that the prediction counts over the links of two hosts.
void ExpectPredictedBytes(const Graph& graph, const StrategyTable& table,
                          const Plan& plan) {
  const TimeModel model = ModelOf(graph, TwoHosts(plan.workers(), true));
  const PredictedTime time = PredictTime(graph, table, plan, model).time;
  int64_t bytes = -time.relayed_bytes;
  for (const PredictedTime::Link& link : time.links) bytes += link.bytes;
  EXPECT_EQ(bytes, plan.total_bytes());
}

TEST(WaitingSums, AreTheTermsOfAGradient) {
  ExampleGraph unknown = UnrolledRnn(8, 8, 3);
  EXPECT_TRUE(FindWaitingSums(unknown.graph(), unknown.table(), SumsWait::kAnywhere)
                  .entries.empty())
      << "nothing is known to pass terms through";
  ExampleGraph once = UnrolledRnn(8, 8, 1);
  EXPECT_TRUE(FindWaitingSums(once.graph(), WithTerms(&once), SumsWait::kInGradients)
                  .entries.empty())
      << "every weight is used once";
  ExampleGraph thrice = UnrolledRnn(8, 8, 3);
  EXPECT_TRUE(FindWaitingSums(thrice.graph(), WithTerms(&thrice), SumsWait::kNever)
                  .entries.empty());
  int terms = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    ExampleGraph shared = SharedWeight(seed);
    const StrategyTable table = WithTerms(&shared);
    const WaitingSums found =
        FindWaitingSums(shared.graph(), table, SumsWait::kInGradients);
    for (int node = 0; node < shared.graph().num_nodes(); ++node) {
      const std::string name = shared.graph().nodes[node].name;
      const bool is_term = name.rfind("gw", 0) == 0;
      if (!is_term) continue;
      EXPECT_TRUE(found.MayWait(shared.graph().entry_id({node, 0}))) << seed << name;
      ++terms;
    }
  }
  EXPECT_GT(terms, 0);
}

TEST(WaitingSums, AreTheTermsOfAnyTensorWhereAllMayWait) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    ExampleGraph shared = SharedInput(seed);
    const Graph& graph = shared.graph();
    const StrategyTable table = WithTerms(&shared);
    EXPECT_TRUE(FindWaitingSums(graph, table, SumsWait::kInGradients).entries.empty());
    const WaitingSums found = FindWaitingSums(graph, table, SumsWait::kAnywhere);
    for (int node = 0; node < graph.num_nodes(); ++node) {
      const bool is_term = graph.nodes[node].name.rfind("gx", 0) == 0;
      EXPECT_EQ(found.MayWait(graph.first_entry[node]), is_term) << seed;
    }
  }
}

// Also where no other element-wise operator is merged.
TEST(WaitingSums, AreCutAsTheTermsThatTheyAdd) {
  int compared = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    ExampleGraph shared = SharedWeight(seed);
    const Graph& graph = shared.graph();
    const StrategyTable table = WithTerms(&shared);
    const WaitingSums found = FindWaitingSums(graph, table, SumsWait::kAnywhere);
    const CoarseGraph coarse =
        Coalesce(graph, table, GroupForwardBackward(graph, table),
                 {false, false, {}, UpdateTies::kAll, SumsWait::kAnywhere});
    for (int node = 0; node < graph.num_nodes(); ++node) {
      const int sum = graph.first_entry[node];
      if (!found.AddsTerms(node) || !found.MayWait(sum)) continue;
      for (NodeEntry input : graph.nodes[node].inputs) {
        const int term = graph.entry_id(input);
        if (!found.MayWait(term)) continue;
        EXPECT_EQ(coarse.tensor_class[term], coarse.tensor_class[sum]) << seed;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 0);
}

bool Waits(const Plan& plan) {
  return std::any_of(plan.tensor_cuts.begin(), plan.tensor_cuts.end(),
                     [](const std::vector<int>& cuts) {
                       return std::find(cuts.begin(), cuts.end(), kTerms) != cuts.end();
                     });
}

class WaitingSumsPlans : public testing::TestWithParam<std::vector<int>> {};

// Without other merged classes, the optimum of all plans.
TEST_P(WaitingSumsPlans, EqualBruteForceAndRecount) {
  int compared = 0;
  int waiting = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = Example(seed);
    const Graph& graph = example.graph();
    const StrategyTable table = WithTerms(&example);
    const CoarseGraph coarse =
        Coalesce(graph, table, GroupForwardBackward(graph, table),
                 {false, false, {}, UpdateTies::kAll, SumsWait::kAnywhere});
    const int64_t expected = BruteForceBytes(
        graph, table, coarse,
        {GetParam(), kMostPlans, ReplicableTensors(graph, table, coarse)});
    if (expected < 0) continue;
    ++compared;
    PlanOptions options;
    options.mode = "flat";
    options.parts = GetParam();
    options.workers = 1;
    for (int part : options.parts) options.workers *= part;
    options.allow_replication = true;
    options.coarsen = false;
    const Plan plan = MakePlan(graph, table, options);
    ASSERT_EQ(plan.total_bytes(), expected);
    ASSERT_EQ(plan.status, PlanStatus::kOptimal);
    ASSERT_EQ(Recount(graph, table, plan), expected);
    ExpectPredictedBytes(graph, table, plan);
    waiting += Waits(plan) ? 1 : 0;
    options.mode = "tofu";
    options.coarsen = true;
    const Plan searched = MakePlan(graph, table, options);
    EXPECT_EQ(Recount(graph, table, searched), searched.total_bytes());
    EXPECT_LE(searched.lower_bound_bytes, searched.total_bytes());
    const Plan without = MakePlan(graph, example.table(), options);
    EXPECT_LE(searched.total_bytes(), without.total_bytes());
  }
  EXPECT_GT(compared, 5);
  EXPECT_GT(waiting, 2);
}

// The same for predicted time. A step takes as long as a recount, too.
TEST_P(WaitingSumsPlans, EqualBruteForceAndRecountInTime) {
  constexpr size_t kMostTimed = 1000;
  int compared = 0;
  int waiting = 0;
  for (unsigned seed = 0; seed < kSeeds && compared < 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = Example(seed);
    const Graph& graph = example.graph();
    const StrategyTable table = WithTerms(&example);
    const CoarseGraph coarse =
        Coalesce(graph, table, GroupForwardBackward(graph, table),
                 {false, false, {}, UpdateTies::kAll, SumsWait::kAnywhere});
    PlanOptions options;
    options.mode = "flat";
    options.parts = GetParam();
    options.workers = 1;
    for (int part : options.parts) options.workers *= part;
    options.allow_replication = true;
    options.coarsen = false;
    const TimeModel model = ModelOf(graph, TwoHosts(options.workers, seed % 2 == 0));
    options.objective.machine = &model;
    const TimeRecount recount(graph, table, model.machine, model.works,
                              Parameters(graph));
    const int64_t best = BruteForceCost(
        graph, table, coarse,
        {GetParam(), kMostTimed, std::vector<bool>(coarse.tensors.size(), true), true},
        [&](const Plan& plan, int node) { return recount.OfNode(plan, node).ns; });
    if (best < 0) continue;
    ++compared;
    const int64_t rounding = 4 * graph.num_nodes();  // of each term
    const Plan plan = MakePlan(graph, table, options);
    ASSERT_LE(std::abs(plan.cost() - best), rounding);
    ASSERT_LE(std::abs(plan.cost() - recount.OfPlan(plan).ns), rounding);
    waiting += Waits(plan) ? 1 : 0;
    options.mode = "tofu";
    options.coarsen = true;
    const Plan searched = MakePlan(graph, table, options);
    EXPECT_LE(std::abs(searched.cost() - recount.OfPlan(searched).ns), rounding);
    EXPECT_LE(searched.lower_bound(), searched.cost());
    EXPECT_LE(searched.cost(), MakePlan(graph, example.table(), options).cost());
  }
  EXPECT_GE(compared, 5);
  EXPECT_GE(waiting, 3);
}

INSTANTIATE_TEST_SUITE_P(Parts, WaitingSumsPlans,
                         testing::Values(std::vector<int>{2}, std::vector<int>{3},
                                         std::vector<int>{4}, std::vector<int>{2, 2}));

// The bytes of a mode's plan, which a recount confirms.
int64_t RecountedBytes(ExampleGraph example, int workers, const char* mode) {
  const StrategyTable table = WithTerms(&example);
  PlanOptions options;
  options.workers = workers;
  options.mode = mode;
  const Plan plan = MakePlan(example.graph(), table, options);
  EXPECT_EQ(Recount(example.graph(), table, plan), plan.total_bytes());
  return plan.total_bytes();
}

// With t timesteps, data parallelism sums each gradient once: 2 (k - 1) S.
TEST(WaitingSums, DataParallelismReducesEachGradientOnce) {
  for (const int workers : {2, 4, 6, 8}) {
    EXPECT_EQ(RecountedBytes(UnrolledRnn(24, 12, 1), workers, "data-parallel"),
              RecountedBytes(UnrolledRnn(24, 12, 5), workers, "data-parallel"))
        << workers << " workers";
  }
}

// A pin of a tensor that could wait holds, in every mode in which sums wait.
TEST(WaitingSums, KeepCutsThatPinsFix) {
  int kept = 0;
  for (const std::string mode : {"tofu", "data-parallel", "zero-2", "mesh-tensorflow"}) {
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
      ExampleGraph example = Example(seed);
      const StrategyTable table = WithTerms(&example);
      const Graph& graph = example.graph();
      const WaitingSums found = FindWaitingSums(graph, table, SumsWait::kAnywhere);
      for (int node = 0; node < graph.num_nodes(); ++node) {
        const int entry = graph.first_entry[node];
        if (!found.MayWait(entry) || graph.shapes[entry][0] < 2) continue;
        PlanOptions options;
        options.workers = 2;
        options.mode = mode;
        options.allow_replication = true;
        options.pins = {{graph.nodes[node].name, {0}}};
        const Plan plan = MakePlan(graph, table, options);
        EXPECT_EQ(plan.tensor_cuts[entry], Cuts{0}) << mode << ", seed " << seed;
        EXPECT_EQ(Recount(graph, table, plan), plan.total_bytes());
        ++kept;
        break;
      }
    }
  }
  EXPECT_GT(kept, 100);
}

// What data parallelism sends by formula: each gradient is reduced once and gathered
// once.
int64_t DataParallelBytes(const Graph& graph, int workers) {
  constexpr int64_t kElementBytes = 4;
  int64_t bytes = 0;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (VariableRole(graph.nodes[node]) != "parameter") continue;
    bytes += 2 * (workers - 1) * NumElements(graph.shape({node, 0})) * kElementBytes;
  }
  return bytes;
}

// Weights without a row or column for each worker cannot be reduced in pieces.
bool MayReduceInPieces(const Graph& graph, int workers) {
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (VariableRole(graph.nodes[node]) != "parameter") continue;
    const Shape& shape = graph.shape({node, 0});
    if (*std::max_element(shape.begin(), shape.end()) < workers) return false;
  }
  return true;
}

TEST(WaitingSums, PlansSendNoMoreThanDataParallelism) {
  int compared = 0;
  for (const int workers : {2, 3, 4, 6, 8}) {
    for (unsigned seed = 0; seed < 300; ++seed) {
      ExampleGraph example = SharedWeight(seed);
      if (!MayReduceInPieces(example.graph(), workers)) continue;
      ++compared;
      PlanOptions options;
      options.workers = workers;
      options.allow_replication = true;
      const Plan plan = MakePlan(example.graph(), WithTerms(&example), options);
      EXPECT_LE(plan.total_bytes(), DataParallelBytes(example.graph(), workers))
          << "seed " << seed << ", " << workers << " workers";
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(WaitingSums, LayoutsOfMeshTensorflowSendNoMoreThanDataParallelism) {
  for (const int workers : {2, 3, 4, 6, 8}) {
    for (const int steps : {1, 5}) {
      ExampleGraph example = UnrolledRnn(24, 24, steps);
      EXPECT_LE(RecountedBytes(example, workers, "mesh-tensorflow"),
                DataParallelBytes(example.graph(), workers))
          << workers << " workers, " << steps << " steps";
    }
  }
}

}  // namespace
}  // namespace tofu
