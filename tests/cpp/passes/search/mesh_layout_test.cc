#include "passes/search/mesh_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "graph/names.h"
#include "passes/coarsen/group.h"
#include "passes/search/make_plan.h"
#include "passes/search/recursion/recursive_search.h"
#include "passes/search/tilings/logical_dimensions.h"
#include "support/example_graphs.h"
#include "support/example_time_model.h"
#include "support/recount.h"
#include "support/recount_time.h"

namespace tofu {
namespace {

CoarseGraph ClassesOfGraph(ExampleGraph* example) {
  return Coalesce(example->graph(), example->table(),
                  GroupForwardBackward(example->graph(), example->table()));
}

Plan MeshPlan(ExampleGraph* example, int workers, const TimeModel* time = nullptr) {
  PlanOptions options;
  options.workers = workers;
  options.mode = "mesh-tensorflow";
  options.objective.machine = time;
  return MakePlan(example->graph(), example->table(), options);
}

TEST(LogicalDimensions, AreTheBatchAndWhatLiesBetweenTwoLayers) {
  ExampleGraph example = Mlp(96, 48, 2);
  const CoarseGraph coarse = ClassesOfGraph(&example);
  const LogicalDimensions dims =
      FindLogicalDimensions(example.graph(), example.table(), coarse);
  const auto of = [&](const std::string& name) {
    return dims.tensors[coarse.tensor_class[FindEntry(example.graph(), name)]];
  };
  EXPECT_EQ(of("fc0")[0], of("fc1")[0]);  // the batch
  const std::vector<int> first = of("fc0_weight");
  const std::vector<int> second = of("fc1_weight");
  const std::set<int> names = {of("fc0")[0], of("fc0")[1], of("fc1")[1]};
  EXPECT_EQ(names.size(), 3u);
  for (const std::vector<int>& weight : {first, second}) {
    EXPECT_NE(weight[0], weight[1]);
    EXPECT_EQ(std::count(weight.begin(), weight.end(), of("fc0")[0]), 0);
  }
  // The second layer reads the output of the first.
  EXPECT_EQ(std::count(first.begin(), first.end(), of("fc0")[1]), 1);
  EXPECT_EQ(std::count(second.begin(), second.end(), of("fc0")[1]), 1);
}

// All layouts, by trying every set of dimensions at every step.
class EveryLayout {
 public:
  EveryLayout(ExampleGraph* example, const CoarseGraph& coarse, std::vector<int> parts)
      : graph_(example->graph()),
        table_(example->table()),
        coarse_(coarse),
        parts_(std::move(parts)),
        dims_(FindLogicalDimensions(graph_, table_, coarse)) {
    std::set<int> found;
    for (const std::vector<int>& vars : dims_.operators) {
      for (int dim : vars) {
        if (dim >= 0) found.insert(dim);
      }
    }
    for (int dim : found) {
      if (IsPossible({{dim}})) candidates_.push_back(dim);
    }
  }

  bool IsSmall() const { return candidates_.size() * parts_.size() <= 14; }

  int64_t Least(const std::function<int64_t(const Plan&)>& cost) {
    least_ = -1;
    Try({}, cost);
    return least_;
  }

 private:
  using Layout = std::vector<std::set<int>>;

  void Try(const Layout& layout, const std::function<int64_t(const Plan&)>& cost) {
    if (layout.size() == parts_.size()) {
      const int64_t found = cost(PlanOf(layout));
      if (least_ < 0 || found < least_) least_ = found;
      return;
    }
    for (unsigned chosen = 0; chosen < 1U << candidates_.size(); ++chosen) {
      Layout next = layout;
      next.emplace_back();
      for (size_t i = 0; i < candidates_.size(); ++i) {
        if ((chosen >> i & 1U) != 0) next.back().insert(candidates_[i]);
      }
      if (IsPossible(next) && CutsAllItCan(next)) Try(next, cost);
    }
  }

  bool CutsAllItCan(const Layout& layout) const {
    return std::all_of(candidates_.begin(), candidates_.end(), [&](int dim) {
      Layout more = layout;
      return !more.back().insert(dim).second || !IsPossible(more);
    });
  }

  // At each step no tensor and no operator has two of the dimensions, and all are cut
  // into parts of which none is more than a quarter above the mean.
  bool IsPossible(const Layout& layout) const {
    const auto fits = [&](const std::vector<int>& dims, const Shape& extents) {
      std::vector<int64_t> parts(extents.size(), 1);
      for (size_t step = 0; step < layout.size(); ++step) {
        int cut = 0;
        for (size_t d = 0; d < dims.size(); ++d) {
          if (dims[d] < 0 || layout[step].count(dims[d]) == 0) continue;
          parts[d] *= parts_[step];
          const int64_t largest = (extents[d] + parts[d] - 1) / parts[d];
          if (++cut > 1 || parts[d] > extents[d]) return false;
          if (largest * parts[d] * 4 > extents[d] * 5) return false;
        }
      }
      return true;
    };
    for (size_t c = 0; c < coarse_.tensors.size(); ++c) {
      if (!fits(dims_.tensors[c], coarse_.tensors[c].shape)) return false;
    }
    for (size_t p = 0; p < coarse_.operators.size(); ++p) {
      const int node = coarse_.operators[p].nodes[0];
      Shape extents;
      for (size_t v = 0; v < dims_.operators[p].size(); ++v) {
        extents.push_back(VariableExtent(graph_, *table_.row(node), node, v));
      }
      if (!fits(dims_.operators[p], extents)) return false;
    }
    return true;
  }

  std::vector<int> CutsOf(const std::vector<int>& dims, const Layout& layout) const {
    std::vector<int> cuts(layout.size(), kReplicated);
    for (size_t step = 0; step < layout.size(); ++step) {
      for (size_t d = 0; d < dims.size(); ++d) {
        if (layout[step].count(dims[d]) > 0) cuts[step] = static_cast<int>(d);
      }
    }
    return cuts;
  }

  Plan PlanOf(const Layout& layout) const {
    Plan plan;
    plan.parts = parts_;
    for (int tensor : coarse_.tensor_class) {
      plan.tensor_cuts.push_back(CutsOf(dims_.tensors[tensor], layout));
    }
    for (int op : coarse_.op_class) {
      plan.op_cuts.push_back(op < 0 ? std::vector<int>(parts_.size(), kReplicated)
                                    : CutsOf(dims_.operators[op], layout));
    }
    return plan;
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const CoarseGraph& coarse_;
  const std::vector<int> parts_;
  const LogicalDimensions dims_;
  std::vector<int> candidates_;
  int64_t least_ = -1;
};

TEST(MeshLayout, IsTheCheapestThatBruteForceFinds) {
  int compared = 0;
  std::set<int64_t> costs;
  for (unsigned seed = 1; seed <= 120; ++seed) {
    for (int workers : {2, 4}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(workers));
      ExampleGraph example = RandomGraph(seed, 1 + static_cast<int>(seed % 3));
      const CoarseGraph coarse = ClassesOfGraph(&example);
      EveryLayout every(&example, coarse, PrimeFactors(workers));
      if (!every.IsSmall()) continue;
      ++compared;
      const Plan plan = MeshPlan(&example, workers);
      const int64_t least = every.Least([&](const Plan& each) {
        return Recount(example.graph(), example.table(), each);
      });
      ASSERT_EQ(plan.total_bytes(), least);
      ASSERT_EQ(plan.status, PlanStatus::kOptimal);
      costs.insert(least);
    }
  }
  EXPECT_GE(compared, 60);
  EXPECT_GE(costs.size(), 20u);
}

TEST(MeshLayout, ForTimeIsTheFastestThatBruteForceFinds) {
  int compared = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 1 + static_cast<int>(seed % 3));
    const Graph& graph = example.graph();
    const CoarseGraph coarse = ClassesOfGraph(&example);
    EveryLayout every(&example, coarse, {2, 2});
    if (!every.IsSmall()) continue;
    ++compared;
    const TimeModel model = ModelOf(graph, TwoHosts(4, seed % 2 == 0));
    const TimeRecount recount(graph, example.table(), model.machine, model.works,
                              Parameters(graph));
    const int64_t least =
        every.Least([&](const Plan& each) { return recount.OfPlan(each).ns; });
    const Plan plan = MeshPlan(&example, 4, &model);
    ASSERT_LE(std::abs(plan.cost() - least), 4 * graph.num_nodes());
  }
  EXPECT_GE(compared, 10);
}

// Sixteen layers have too many layouts to try all.
TEST(MeshLayout, LocalSearchFindsNoWorseThanDataParallelism) {
  ExampleGraph example = Mlp(96, 24, 16);
  const TimeModel model = ModelOf(example.graph(), TwoHosts(8, false));
  PlanOptions options;
  options.workers = 8;
  options.mode = "data-parallel";
  options.objective.machine = &model;
  const Plan data_parallel = MakePlan(example.graph(), example.table(), options);
  const Plan plan = MeshPlan(&example, 8, &model);
  EXPECT_LE(plan.cost(), data_parallel.cost());
  EXPECT_EQ(plan.status, PlanStatus::kFeasible);
  EXPECT_EQ(plan.lower_bound(), 0);
  EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan));
}

// A change of layout is priced with the operators' new splits. With their old ones, the
// search stops at 602,112 bytes.
TEST(MeshLayout, LocalSearchAlternatesTheCutsOfWideLayers) {
  ExampleGraph example = Mlp(8, 96, 16);
  EXPECT_LE(MeshPlan(&example, 8).total_bytes(), 380928);
}

TEST(MeshLayout, PinsStay) {
  ExampleGraph example = Mlp(96, 48, 2);
  PlanOptions options;
  options.workers = 4;
  options.mode = "mesh-tensorflow";
  options.pins = {{"fc0_weight", {1, 0}}};
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  EXPECT_EQ(plan.tensor_cuts[FindEntry(example.graph(), "fc0_weight")],
            (std::vector<int>{1, 0}));
}

}  // namespace
}  // namespace tofu
