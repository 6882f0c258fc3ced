// What several threads may do at once: plan and partition, for Python lets its
// lock go meanwhile, and fetch by one specification, as MXNet's workers do.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "graph/plan_json.h"
#include "passes/partition/partition.h"
#include "passes/partition/partitioned.h"
#include "passes/schedule/control_deps.h"
#include "passes/schedule/order_nodes.h"
#include "passes/schedule/phases.h"
#include "passes/search/make_plan.h"
#include "passes/search/modes.h"
#include "support/example_graphs.h"

extern "C" const char* TofuRunMultiFetch(const char* spec, const void* const* sources,
                                         void* region);

namespace tofu {
namespace {

constexpr int kThreads = 4;

template <typename Function>
std::vector<std::string> OnAllThreads(const Function& function) {
  std::vector<std::string> results(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&function, &results, i] { results[i] = function(i); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

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
    OrderNodes(&phases.forward.graph);
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
    for (const std::string& found : OnAllThreads([&](int /*thread*/) {
           return PlannedAndPartitioned(shared, example.table(), fetch);
         })) {
      EXPECT_EQ(found, expected);
    }
  }
}

TEST(Threads, FetchFromOneTileAtOnce) {
  constexpr int kRows = 64;
  constexpr int kWidth = 32;
  std::vector<float> tile(kRows * kWidth);
  std::iota(tile.begin(), tile.end(), 0.0F);
  const auto wrong = OnAllThreads([&](int thread) {
    std::string problems;
    std::vector<float> region(kRows * kWidth / 2);
    for (int round = 0; round < 200; ++round) {
      // Some are read for the first time by several threads, most are known.
      const int begin = (round / 10 + thread % 2) % (kWidth / 2);
      const std::string spec = "dtype=0 shape=64,16 remote=0 sources=64,32; pieces=0@0," +
                               std::to_string(begin) + ">0,0:64,16";
      const void* sources[] = {tile.data()};
      const char* problem = TofuRunMultiFetch(spec.c_str(), sources, region.data());
      if (problem != nullptr) problems += problem;
      for (int i = 0; i < kRows; ++i) {
        for (int j = 0; j < kWidth / 2; ++j) {
          if (region[i * kWidth / 2 + j] != tile[i * kWidth + begin + j]) {
            problems += "row " + std::to_string(i) + " of round " + std::to_string(round);
          }
        }
      }
    }
    return problems;
  });
  for (const std::string& problem : wrong) EXPECT_EQ(problem, "");
}

}  // namespace
}  // namespace tofu
