#include "passes/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "example_graphs.h"
#include "graph/box.h"
#include "graph/error.h"
#include "passes/pipeline.h"
#include "recount.h"

namespace tofu {
namespace {

Plan PlanFor(ExampleGraph* example, int workers, const std::string& mode = "tofu",
             const std::vector<int>& parts = {}) {
  PlanOptions options;
  options.workers = workers;
  options.mode = mode;
  options.parts = parts;
  return MakePlan(example->graph(), example->table(), options);
}

// The least that Recount counts over all ways to cut the tensor classes, each
// operator by itself taking its best split: for one step.
class BruteForce {
 public:
  BruteForce(const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
             const std::vector<int>& parts)
      : graph_(graph), table_(table), coarse_(coarse), used_(UsedEntries(graph)) {
    plan_.parts = parts;
    plan_.tensor_cuts.resize(static_cast<size_t>(graph.num_entries()));
    plan_.op_cuts.assign(graph.nodes.size(), std::vector<int>(parts.size(), kReplicated));
  }

  // -1 when there are more than `limit` ways to cut the tensors.
  int64_t Run(size_t limit) {
    size_t ways = 1;
    for (const TensorClass& tensor : coarse_.tensors) {
      choices_.push_back(Choices(tensor.shape, true, {}));
      ways *= choices_.back().size();
      if (ways > limit) return -1;
    }
    Tensor(0);
    return best_;
  }

 private:
  // All cuts over all steps, by trying every number at every step.
  std::vector<Cuts> Choices(const Shape& extents, bool is_tensor,
                            const std::vector<int>& allowed) const {
    std::vector<std::pair<Cuts, Shape>> found = {{{}, extents}};
    for (int part : plan_.parts) {
      std::vector<std::pair<Cuts, Shape>> next;
      for (const auto& [cuts, left] : found) {
        const size_t before = next.size();
        for (size_t d = 0; d < left.size(); ++d) {
          const bool may = is_tensor || std::count(allowed.begin(), allowed.end(), d) > 0;
          if (!may || left[d] % part != 0) continue;
          next.emplace_back(cuts, left);
          next.back().first.push_back(static_cast<int>(d));
          next.back().second[d] /= part;
        }
        if (next.size() > before) continue;
        next.emplace_back(cuts, left);
        next.back().first.push_back(kReplicated);
      }
      found = std::move(next);
    }
    std::vector<Cuts> result;
    for (auto& [cuts, left] : found) result.push_back(std::move(cuts));
    return result;
  }

  void Tensor(size_t c) {
    if (c < coarse_.tensors.size()) {
      for (const Cuts& cuts : choices_[c]) {
        for (int entry : coarse_.tensors[c].entries) plan_.tensor_cuts[entry] = cuts;
        Tensor(c + 1);
      }
      return;
    }
    int64_t sum = 0;
    for (int node = 0; node < graph_.num_nodes() && sum < best_; ++node) {
      if (!graph_.nodes[node].is_variable()) sum += Operator(node);
    }
    best_ = std::min(best_, sum);
  }

  int64_t Operator(int node) {
    const StrategyRow* row = table_.row(node);
    Shape extents;
    for (size_t v = 0; row != nullptr && v < row->vars.size(); ++v) {
      extents.push_back(VarExtent(*row, static_cast<int>(v), graph_, node));
    }
    int64_t best = std::numeric_limits<int64_t>::max();
    for (const Cuts& cuts :
         Choices(extents, false, row == nullptr ? Cuts() : row->splittable)) {
      plan_.op_cuts[node] = cuts;
      best = std::min(best, RecountNode(graph_, table_, plan_, used_, node));
    }
    return best;
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const CoarseGraph& coarse_;
  const std::vector<bool> used_;
  std::vector<std::vector<Cuts>> choices_;
  Plan plan_;
  int64_t best_ = std::numeric_limits<int64_t>::max();
};

CoarseGraph Coarsen(ExampleGraph* example) {
  const Groups groups = GroupForwardBackward(example->graph(), example->table());
  return Coalesce(example->graph(), example->table(), groups);
}

TEST(Search, OneStepEqualsBruteForceOnRandomGraphs) {
  int compared = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    ExampleGraph example = RandomGraph(seed, 1 + static_cast<int>(seed % 5));
    const CoarseGraph coarse = Coarsen(&example);
    for (int workers : {2, 3, 4, 6, 8}) {
      BruteForce oracle(example.graph(), example.table(), coarse, {workers});
      const int64_t expected = oracle.Run(600);
      if (expected < 0) continue;
      const Plan plan = PlanFor(&example, workers, "recursion", {workers});
      ++compared;
      ASSERT_EQ(plan.total_bytes(), expected)
          << "seed " << seed << ", " << workers
          << " workers: " << WriteGraph(example.graph());
      ASSERT_EQ(plan.lower_bound_bytes, expected) << "seed " << seed;
      ASSERT_EQ(plan.status, PlanStatus::kOptimal) << "seed " << seed;
    }
  }
  EXPECT_GE(compared, 1000);
}

TEST(Search, AllStepsAreBoundedByBruteForceOverJointPlans) {
  int compared = 0;
  int optimal = 0;
  for (unsigned seed = 1; seed <= 120; ++seed) {
    ExampleGraph example = RandomGraph(seed, 1 + static_cast<int>(seed % 3));
    const CoarseGraph coarse = Coarsen(&example);
    for (const std::vector<int>& parts :
         {std::vector<int>{2, 2}, std::vector<int>{3, 2}, std::vector<int>{2, 2, 2}}) {
      BruteForce oracle(example.graph(), example.table(), coarse, parts);
      const int64_t expected = oracle.Run(300);
      if (expected < 0) continue;
      const int workers = parts.size() == 3 ? 8 : parts[0] * parts[1];
      const Plan plan = PlanFor(&example, workers, "tofu", parts);
      ++compared;
      optimal += plan.total_bytes() == expected ? 1 : 0;
      ASSERT_GE(plan.total_bytes(), expected) << "seed " << seed;
      ASSERT_LE(plan.lower_bound_bytes, expected) << "seed " << seed;
      ASSERT_LE(plan.total_bytes(),
                PlanFor(&example, workers, "recursion", parts).total_bytes())
          << "seed " << seed;
    }
  }
  EXPECT_GE(compared, 200);
  EXPECT_EQ(optimal, compared) << "small problems are solved jointly";
}

TEST(Search, ThePlanCostsWhatARecountOfEveryWorkerFinds) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    ExampleGraph example = RandomGraph(seed, 10);
    for (int workers : {2, 3, 4, 6, 8, 12}) {
      const Plan plan = PlanFor(&example, workers);
      ASSERT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan))
          << "seed " << seed << ", " << workers
          << " workers: " << WriteGraph(example.graph());
    }
  }
}

// Cut along the batch first, the second step can undo no more than a part of
// it; the best first step is not the best beginning. 8,192 elements for each of
// three products is the optimum when every operator fetches for itself (4,096
// less if the two that read w shared what they fetch of it).
TEST(Search, ImprovesTheRecursionWhereTheOrderOfStepsMatters) {
  for (bool trained : {false, true}) {
    ExampleGraph example = OneLayer(64, 64, 64, trained);
    const Plan recursion = PlanFor(&example, 4, "recursion");
    const Plan plan = PlanFor(&example, 4);
    EXPECT_EQ(plan.total_bytes(), 3 * 8192 * 4);
    EXPECT_EQ(plan.lower_bound_bytes, plan.total_bytes());
    EXPECT_GT(recursion.total_bytes(), plan.total_bytes());
    EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan));
  }
}

// Wide layers and a small batch: weights stay put. Each of the L products, L-1
// backward ones, moves one activation; cutting along the contracted dimension
// costs (k-1) * batch * width a time. A large batch moves weights instead: a
// weight gradient is reduced for (k-1) * width^2, and a weight is fetched whole
// for as much; its backward use fetches it again.
TEST(Search, AnMlpCostsItsClosedForm) {
  constexpr int64_t kWidth = 64;
  for (int workers : {2, 3, 4}) {
    ExampleGraph large = Mlp(24 * 1024, kWidth * 3, 1);
    const int64_t width = kWidth * 3;
    // Batch everywhere: the weight is fetched once, its gradient and the
    // bias's reduced once each, and the bias fetched.
    const int64_t elements = (workers - 1) * (2 * width * width + 2 * width);
    EXPECT_EQ(PlanFor(&large, workers, "recursion", {workers}).total_bytes(),
              4 * elements)
        << workers << " workers";
  }
}

TEST(Search, AnUnrolledNetworkCostsMoreForEveryStep) {
  int64_t before = 0;
  for (int steps = 2; steps <= 20; ++steps) {
    ExampleGraph example = UnrolledRnn(64, 32, steps);
    const Plan plan = PlanFor(&example, 4);
    EXPECT_GT(plan.total_bytes(), before) << steps << " steps";
    EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan));
    before = plan.total_bytes();
  }
}

TEST(Search, AUnrolledNetworkIsAsSmallAProblemForAnyNumberOfSteps) {
  ExampleGraph few = UnrolledRnn(64, 32, 4);
  ExampleGraph many = UnrolledRnn(64, 32, 40);
  EXPECT_EQ(Coarsen(&few).operators.size(), Coarsen(&many).operators.size());
}

TEST(Search, ALongResidualNetworkIsSolvedExactly) {
  ExampleGraph example = Residual(512, 64, 500);
  const Plan plan = PlanFor(&example, 8);
  EXPECT_EQ(plan.status, PlanStatus::kOptimal);
  EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan));
}

TEST(Search, EqualInputGivesEqualPlans) {
  ExampleGraph example = Mlp(96, 48, 5);
  const Plan a = PlanFor(&example, 6);
  const Plan b = PlanFor(&example, 6);
  EXPECT_EQ(a.tensor_cuts, b.tensor_cuts);
  EXPECT_EQ(a.op_cuts, b.op_cuts);
}

TEST(Search, OneWorkerNeedsNoSteps) {
  ExampleGraph example = Mlp(8, 8, 1);
  const Plan plan = PlanFor(&example, 1);
  EXPECT_TRUE(plan.parts.empty());
  EXPECT_EQ(plan.total_bytes(), 0);
}

TEST(Search, AParameterIsCutLikeItsGradient) {
  ExampleGraph example = Mlp(64, 64, 3);
  const Graph& graph = example.graph();
  const Plan plan = PlanFor(&example, 8);
  for (size_t i = 0; i < graph.heads.size(); ++i) {
    const std::string name = RoleTarget(graph.head_roles[i], "gradient:");
    if (name.empty()) continue;
    const int variable = graph.first_entry[FindVariable(graph, name)];
    EXPECT_EQ(plan.tensor_cuts[variable],
              plan.tensor_cuts[graph.entry_id(graph.heads[i])])
        << name;
  }
}

TEST(Search, ATensorThatNothingDividesIsReplicated) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {5, 7});
  const NodeEntry scalar = example.Variable("scalar", {});
  example.Head(example.Dropout("y", x), "output");
  example.Head(scalar, "output");
  const Plan plan = PlanFor(&example, 2);
  EXPECT_EQ(plan.tensor_cuts[0], std::vector<int>{kReplicated});
  EXPECT_EQ(plan.tensor_cuts[1], std::vector<int>{kReplicated});
  EXPECT_EQ(plan.total_bytes(), 35 * 4) << "worker 1 fetches what worker 0 drew";
}

TEST(Search, APinFixesItsClass) {
  ExampleGraph example = Mlp(64, 64, 2);
  PlanOptions options;
  options.workers = 4;
  options.pins = {{"fc0_weight", {1, 1}}};
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  const int node = FindVariable(example.graph(), "fc0_weight");
  EXPECT_EQ(plan.tensor_cuts[example.graph().first_entry[node]],
            (std::vector<int>{1, 1}));
}

std::string PinError(const std::map<std::string, std::vector<int>>& pins) {
  ExampleGraph example = UnrolledRnn(6, 10, 2);
  PlanOptions options;
  options.workers = 4;
  options.pins = pins;
  try {
    MakePlan(example.graph(), example.table(), options);
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kPlan);
    return error.what();
  }
  return "no error";
}

TEST(Search, PinsThatDoNotFitAreExplained) {
  EXPECT_NE(PinError({{"nobody", {0, 0}}}).find("no tensor of that name"),
            std::string::npos);
  EXPECT_NE(PinError({{"wx", {0, 0, 0}}}).find("found 3 cuts, expected one for each"),
            std::string::npos);
  EXPECT_NE(PinError({{"wx", {2, 0}}}).find("found dimension 2"), std::string::npos);
  EXPECT_NE(PinError({{"wx", {0, 0}}}).find("step 2: found extent 5"), std::string::npos);
}

TEST(Search, OptionsThatMakeNoSenseAreExplained) {
  ExampleGraph example = Mlp(8, 8, 1);
  EXPECT_THROW(PlanFor(&example, 0), UserError);
  EXPECT_THROW(PlanFor(&example, 4, "fastest"), UserError);
  EXPECT_THROW(PlanFor(&example, 4, "tofu", {2, 3}), UserError);
}

}  // namespace
}  // namespace tofu
