// Compares plans within a memory limit with all plans that fit.
#include "passes/search/recursion/memory_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/lives/memory_order.h"
#include "graph/lives/tensor_lives.h"
#include "passes/coarsen/group.h"
#include "passes/search/make_frontier.h"
#include "passes/search/make_plan.h"
#include "passes/search/modes.h"
#include "passes/search/tilings/class_cuts.h"
#include "support/brute_force.h"
#include "support/example_graphs.h"
#include "support/example_time_model.h"
#include "support/recount.h"
#include "support/recount_time.h"

namespace tofu {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// Counts the peak of a worker's tiles moment by moment, from the definition.
class TileMemory {
 public:
  TileMemory(const Graph& graph, const StrategyTable& table)
      : graph_(graph), table_(table), order_(MemoryOrder(graph)) {
    keep_ = FindTensorLives(graph).keep;
  }

  int64_t Peak(const Plan& plan) const {
    int64_t peak = 0;
    for (size_t now = 0; now < order_.size(); ++now) {
      int64_t alive = 0;
      for (int entry = 0; entry < graph_.num_entries(); ++entry) {
        if (IsAlive(entry, now)) alive += Tile(entry, plan);
      }
      peak = std::max(peak, alive);
    }
    return peak;
  }

 private:
  int64_t Tile(int entry, const Plan& plan) const {
    int64_t bytes = DtypeBytes(graph_.dtypes[entry]);
    for (size_t d = 0; d < graph_.shapes[entry].size(); ++d) {
      int64_t parts = 1;
      for (size_t step = 0; step < plan.parts.size(); ++step) {
        if (plan.tensor_cuts[entry][step] == static_cast<int>(d))
          parts *= plan.parts[step];
      }
      bytes *= (graph_.shapes[entry][d] + parts - 1) / parts;  // of the largest tile
    }
    return bytes;
  }

  // The moments of its operator and of its last reader.
  std::pair<size_t, size_t> Life(int entry) const {
    size_t begin = 0;
    size_t last = 0;
    for (size_t at = 0; at < order_.size(); ++at) {
      const int node = order_[at];
      const int first = graph_.first_entry[node];
      if (entry >= first && entry < first + graph_.nodes[node].num_outputs) {
        begin = last = at;
      }
      for (NodeEntry input : graph_.nodes[node].inputs) {
        if (graph_.entry_id(input) == entry) last = std::max(last, at);
      }
    }
    return {begin, last};
  }

  bool IsAlive(int entry, size_t now) const {
    if (keep_[entry] == Keep::kInPlace) return false;
    if (keep_[entry] != Keep::kUntilRead) return true;
    const auto [made, last] = Life(entry);
    if (now < made || now > last) return false;
    return now < last || made == last || !IsOverwritten(entry, order_[now]);
  }

  // Whether the first input of the output's size that dies at an element-wise operator
  // is this one.
  bool IsOverwritten(int entry, int node) const {
    const StrategyRow* row = table_.row(node);
    const int output = graph_.first_entry[node];
    if (row == nullptr || !row->elementwise || graph_.nodes[node].num_outputs != 1 ||
        keep_[output] != Keep::kUntilRead) {
      return false;
    }
    for (NodeEntry input : graph_.nodes[node].inputs) {
      const int id = graph_.entry_id(input);
      if (keep_[id] != Keep::kUntilRead || order_[Life(id).second] != node) continue;
      if (graph_.shapes[id] != graph_.shapes[output]) continue;
      if (graph_.dtypes[id] == graph_.dtypes[output]) return id == entry;
    }
    return false;
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const std::vector<int> order_;
  std::vector<Keep> keep_;
};

// The classes of a search that releases every element-wise operator.
CoarseGraph Released(const Graph& graph, const StrategyTable& table) {
  return Coalesce(graph, table, GroupForwardBackward(graph, table), {false, false, {}});
}

// The least cost of these pairs of bytes and cost that take at most `bytes`.
int64_t LeastWithin(const std::map<int64_t, int64_t>& pairs, int64_t bytes) {
  int64_t least = kNone;
  for (const auto& [used, cost] : pairs) {
    if (used <= bytes) least = std::min(least, cost);
  }
  return least;
}

struct Searched {
  int compared = 0;
  int released = 0;    // searches that find less than the best plan of merged classes
  int limited = 0;     // searches whose limit rules out the best plan
  int impossible = 0;  // searches whose limit rules out all plans
};

class WithinLimit : public testing::TestWithParam<std::vector<int>> {
 protected:
  // Compares limits from half to all of the memory of the best plan. A limited search
  // releases the operators that the unlimited plan releases. So its plan costs at most
  // what the best plan of merged classes does; if less, at least what the best one does
  // that splits every element-wise operator.
  void Compare(ExampleGraph* example, Searched* searched) {
    const Graph& graph = example->graph();
    const CoarseGraph coarse =
        Coalesce(graph, example->table(), GroupForwardBackward(graph, example->table()));
    const std::vector<bool> may_be_whole =
        ReplicableTensors(graph, example->table(), coarse);
    const TileMemory memory(graph, example->table());
    const PlanSpace space{GetParam(), 300, may_be_whole};
    const CoarseGraph fine = Released(graph, example->table());
    const PlanSpace all{GetParam(), 3000,
                        ReplicableTensors(graph, example->table(), fine)};
    if (BruteForceBytes(graph, example->table(), coarse, space) < 0) {
      return;
    }
    PlanOptions options;
    options.parts = GetParam();
    options.workers = 1;
    for (int part : GetParam()) options.workers *= part;
    options.allow_replication = true;
    const int64_t most = memory.Peak(MakePlan(graph, example->table(), options));
    for (const int64_t limit : {most, most - 1, most * 3 / 4, most / 2}) {
      const auto fits = [&](const Plan& plan) { return memory.Peak(plan) <= limit; };
      const int64_t most_cost =
          BruteForceBytes(graph, example->table(), coarse, space, fits);
      const int64_t least_cost =
          BruteForceBytes(graph, example->table(), fine, all, fits);
      options.memory_limit_bytes = limit;
      ++searched->compared;
      searched->limited += limit < most && most_cost != kNone;
      if (most_cost == kNone) {
        ++searched->impossible;
        if (least_cost != kNone) continue;  // a plan that releases operators may fit
        ASSERT_THROW(MakePlan(graph, example->table(), options), UserError);
        continue;
      }
      const Plan plan = MakePlan(graph, example->table(), options);
      ASSERT_LE(memory.Peak(plan), limit);
      ASSERT_LE(plan.total_bytes(), most_cost) << WriteGraph(graph);
      ASSERT_GE(plan.total_bytes(), std::min(most_cost, least_cost)) << WriteGraph(graph);
      ASSERT_EQ(Recount(graph, example->table(), plan), plan.total_bytes());
      ASSERT_EQ(plan.status, PlanStatus::kOptimal);
      searched->released += plan.total_bytes() < most_cost;
    }
  }
};

TEST_P(WithinLimit, LiesBetweenBruteForceOfAllAndOfMergedPlans) {
  Searched searched;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 1 + static_cast<int>(seed % 5));
    Compare(&example, &searched);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(searched.compared, 200);
  EXPECT_GE(searched.limited, 10);
  EXPECT_GE(searched.impossible, 10);
  EXPECT_GE(searched.released, 1);
}

INSTANTIATE_TEST_SUITE_P(Search, WithinLimit,
                         testing::Values(std::vector<int>{2}, std::vector<int>{3},
                                         std::vector<int>{4}, std::vector<int>{2, 2}));

// Compares all pairs of cost and memory with those of brute force, for costs in bytes or,
// with a machine, in time.
class Frontiers : public WithinLimit {
 protected:
  static constexpr size_t kWays = 300;  // to cut the tensors, at most

  void CompareFrontiers(ExampleGraph* example, const TimeModel* time,
                        Searched* searched) {
    const Graph& graph = example->graph();
    const StrategyTable& table = example->table();
    const CoarseGraph coarse = Coalesce(graph, table, GroupForwardBackward(graph, table));
    const TileMemory memory(graph, table);
    const std::vector<bool> read = ReadTensors(graph);
    std::optional<TimeRecount> recount;
    if (time != nullptr) {
      recount.emplace(graph, table, time->machine, time->works, Parameters(graph));
    }
    const NodeCost cost = [&](const Plan& plan, int node) {
      return recount ? recount->OfNode(plan, node).ns
                     : RecountNode(graph, table, plan, read, node);
    };
    const std::vector<bool> may_be_whole =
        time == nullptr ? ReplicableTensors(graph, table, coarse)
                        : std::vector<bool>(coarse.tensors.size(), true);
    const std::map<int64_t, int64_t> expected = BruteForceFrontier(
        graph, table, coarse, {GetParam(), 100, may_be_whole, time != nullptr}, cost,
        [&](const Plan& plan) { return memory.Peak(plan); });
    if (expected.empty()) return;
    std::map<int64_t, int64_t> released;
    if (time == nullptr) {
      const CoarseGraph fine = Released(graph, table);
      released = BruteForceFrontier(
          graph, table, fine,
          {GetParam(), 1000, ReplicableTensors(graph, table, fine), false}, cost,
          [&](const Plan& plan) { return memory.Peak(plan); });
    }
    PlanOptions options;
    options.parts = GetParam();
    options.workers = 1;
    for (int part : GetParam()) options.workers *= part;
    options.objective.machine = time;
    const PlanFrontier frontier = MakeFrontier(graph, table, options, 1000);
    std::map<int64_t, int64_t> pairs;
    for (size_t i = 0; i < frontier.plans.size(); ++i) {
      ASSERT_EQ(memory.Peak(frontier.plans[i]), frontier.tile_bytes[i]);
      ASSERT_EQ(frontier.plans[i].lower_bound(), frontier.plans[i].cost());
      pairs[frontier.tile_bytes[i]] = frontier.plans[i].cost();
    }
    ++searched->compared;
    searched->limited += expected.size() > 1;
    if (pairs == expected) {
      ASSERT_TRUE(frontier.is_complete);
      return;
    }
    // Operators are released: no plan of merged classes is better than all of these.
    ++searched->released;
    ASSERT_EQ(time, nullptr) << WriteGraph(graph);
    for (const auto& [bytes, least] : expected) {
      ASSERT_LE(LeastWithin(pairs, bytes), least) << WriteGraph(graph);
    }
    for (const auto& [bytes, found] : pairs) {
      if (released.empty()) continue;
      const int64_t least =
          std::min(LeastWithin(expected, bytes), LeastWithin(released, bytes));
      ASSERT_GE(found, least) << WriteGraph(graph);
    }
  }
};

TEST_P(Frontiers, EqualBruteForceOrReleaseOnRandomGraphs) {
  Searched searched;
  for (unsigned seed = 1; searched.compared < 300; ++seed) {
    ASSERT_LE(seed, 3000);
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 1 + static_cast<int>(seed % 5));
    CompareFrontiers(&example, nullptr, &searched);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(searched.limited, 10);
  EXPECT_LE(searched.released, 30);
}

TEST_P(Frontiers, OfTimeEqualBruteForceOnRandomGraphs) {
  Searched searched;
  for (unsigned seed = 1; searched.compared < 80; ++seed) {
    ASSERT_LE(seed, 2000);
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 1 + static_cast<int>(seed % 3));
    const TimeModel model = ModelOf(example.graph(), TwoHosts(4, true));
    CompareFrontiers(&example, &model, &searched);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(searched.limited, 10);
}

INSTANTIATE_TEST_SUITE_P(Search, Frontiers,
                         testing::Values(std::vector<int>{2}, std::vector<int>{3},
                                         std::vector<int>{4}, std::vector<int>{2, 2}));

TEST(MemorySearch, LimitsOnlyModesThatImproveSteps) {
  ExampleGraph example = Mlp(8, 8, 2);
  PlanOptions options;
  options.workers = 2;
  options.memory_limit_bytes = 1 << 20;
  options.mode = "spartan";
  EXPECT_THROW(MakePlan(example.graph(), example.table(), options), UserError);
  options.mode = "tofu";
  options.memory_limit_bytes = -1;
  EXPECT_THROW(MakePlan(example.graph(), example.table(), options), UserError);
  options.memory_limit_bytes = 1;
  try {
    MakePlan(example.graph(), example.table(), options);
    FAIL() << "a plan within 1 byte";
  } catch (const UserError& error) {
    const std::string told = error.what();
    EXPECT_NE(told.find("take 1 bytes or less"), std::string::npos) << told;
    EXPECT_NE(told.find("the least found is "), std::string::npos) << told;
  }
}

// h = relu(x) takes x's place if x is not read later.
TEST(MemoryLimit, ElementwiseOperatorsOverwriteWhatDies) {
  for (const bool is_read_later : {false, true}) {
    ExampleGraph example;
    const NodeEntry data = example.Variable("data", {8, 8});
    const NodeEntry x = example.SumRows("x", data);
    const NodeEntry h = example.Elementwise("h", {x});
    std::vector<NodeEntry> last = {h};
    if (is_read_later) last.push_back(x);
    example.Head(example.Elementwise("out", last, "add"), "output");
    const Graph& graph = example.graph();
    const CoarseGraph coarse =
        Coalesce(graph, example.table(), GroupForwardBackward(graph, example.table()));
    const MemoryLimit limit = LimitMemory(graph, example.table(), coarse, 1);
    const std::vector<Cuts> whole(coarse.tensors.size(), Cuts(1, kReplicated));
    // The data and the output are always alive.
    const int64_t tensor = 8 * 4;
    EXPECT_EQ(limit.PeakBytes(whole, {2}), 8 * tensor + tensor * (is_read_later ? 3 : 2));
    const std::vector<Cuts> halves(coarse.tensors.size(), Cuts(1, 0));
    EXPECT_EQ(limit.PeakBytes(halves, {2}), limit.PeakBytes(whole, {2}) / 2);
    // The fullest of three workers holds three of eight rows.
    EXPECT_EQ(limit.PeakBytes(halves, {3}), limit.PeakBytes(whole, {3}) / 8 * 3);
  }
}

// A search out of time decides without the limit; such a plan must not be taken.
TEST(MemorySearch, ASearchOutOfTimeFitsOrFails) {
  ExampleGraph example = Mlp(64, 64, 4);
  const Graph& graph = example.graph();
  const TileMemory memory(graph, example.table());
  PlanOptions options;
  options.workers = 8;
  const int64_t least = memory.Peak(MakePlan(graph, example.table(), options));
  options.allow_replication = true;
  options.time_limit_s = 1e-9;
  for (const int64_t limit : {least / 2, least, 2 * least}) {
    options.memory_limit_bytes = limit;
    try {
      EXPECT_LE(memory.Peak(MakePlan(graph, example.table(), options)), limit);
    } catch (const UserError&) {
      EXPECT_LT(limit, 2 * least);
    }
  }
}

// Eight workers are searched step by step; less memory never costs fewer bytes.
TEST(MemorySearch, StepsShareTheMemoryThereIs) {
  ExampleGraph example = Mlp(64, 64, 4);
  const Graph& graph = example.graph();
  PlanOptions options;
  options.workers = 8;
  const TileMemory memory(graph, example.table());
  const Plan cut = MakePlan(graph, example.table(), options);
  options.allow_replication = true;
  const Plan free = MakePlan(graph, example.table(), options);
  ASSERT_LT(free.total_bytes(), cut.total_bytes());
  ASSERT_GT(memory.Peak(free), memory.Peak(cut));
  int64_t before = free.total_bytes();
  for (int share = 8; share >= 0; --share) {
    options.memory_limit_bytes =
        memory.Peak(cut) + (memory.Peak(free) - memory.Peak(cut)) * share / 8;
    const Plan plan = MakePlan(graph, example.table(), options);
    EXPECT_LE(memory.Peak(plan), options.memory_limit_bytes);
    EXPECT_LE(plan.total_bytes(), cut.total_bytes());
    EXPECT_GE(plan.total_bytes(), before) << share;
    EXPECT_GE(plan.lower_bound_bytes, free.lower_bound_bytes);
    EXPECT_EQ(Recount(graph, example.table(), plan), plan.total_bytes());
    before = plan.total_bytes();
  }
}

}  // namespace
}  // namespace tofu
