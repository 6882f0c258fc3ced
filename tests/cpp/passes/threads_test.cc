// Planning and partitioning on several threads at once, because Python's lock is released
// during these calls.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "graph/plan_json.h"
#include "passes/partition/partition.h"
#include "passes/partition/partitioned.h"
#include "passes/schedule/control_deps.h"
#include "passes/schedule/phases.h"
#include "passes/search/make_plan.h"
#include "passes/search/modes.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

constexpr int kThreads = 4;

// The phases of a plan in every mode, as text.
std::string PlannedAndPartitioned(const Graph& graph, const StrategyTable& table,
                                  FetchKind fetch) {
  std::string text;
  for (const std::string& mode : SearchModes()) {
    PlanOptions options;
    options.workers = 4;
    options.mode = mode;
    const Plan plan = MakePlan(graph, table, options);
    Phases phases = SplitPhases(PartitionGraph(graph, table, plan, {{}, fetch}));
    AddControlDeps(&phases.forward.graph);
    text += DumpPhases(phases);
  }
  return text;
}

TEST(Threads, PlanAndPartitionAtOnce) {
  for (const FetchKind fetch : {FetchKind::kPlain, FetchKind::kMultiFetch}) {
    ExampleGraph example = Mlp(24, 12, 2);
    const Graph& shared = example.graph();
    const std::string expected = PlannedAndPartitioned(shared, example.table(), fetch);
    EXPECT_GT(expected.size(), 1000u);
    std::vector<std::string> found(kThreads);
    std::vector<std::thread> threads;
    for (std::string& text : found) {
      threads.emplace_back(
          [&] { text = PlannedAndPartitioned(shared, example.table(), fetch); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& text : found) EXPECT_EQ(text, expected);
  }
}

}  // namespace
}  // namespace tofu
