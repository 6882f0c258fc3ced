#include "passes/simulate/event_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"
#include "support/example_machine.h"

namespace tofu {
namespace {

// Operations with their predecessors.
class Script {
 public:
  int Add(const Operation& operation, const std::vector<int>& after = {}) {
    all_.operations.push_back(operation);
    after_.push_back(after);
    return static_cast<int>(after_.size()) - 1;
  }
  int Compute(int device, double seconds, const std::vector<int>& after = {}) {
    Operation operation;
    operation.device = device;
    operation.compute_s = seconds;
    return Add(operation, after);
  }
  int Fetch(int from, int to, double bytes, const std::vector<int>& after = {}) {
    Operation operation;
    operation.device = to;
    operation.activity = Activity::kFetch;
    operation.first_flow = static_cast<int>(all_.flows.size());
    operation.num_flows = 1;
    all_.flows.push_back({from, to, bytes});
    return Add(operation, after);
  }
  Execution Run(const Machine& machine) {
    const int count = static_cast<int>(after_.size());
    all_.first_successor.assign(after_.size() + 1, 0);
    all_.successors.clear();
    all_.num_predecessors.clear();
    for (const auto& after : after_) {
      all_.num_predecessors.push_back(static_cast<int>(after.size()));
    }
    for (int i = 0; i < count; ++i) {
      for (int j = 0; j < count; ++j) {
        if (std::count(after_[j].begin(), after_[j].end(), i))
          all_.successors.push_back(j);
      }
      all_.first_successor[i + 1] = static_cast<int>(all_.successors.size());
    }
    return RunOperations(all_, machine);
  }
  const std::vector<std::vector<int>>& after() const { return after_; }
  const Operations& all() const { return all_; }

 private:
  Operations all_;
  std::vector<std::vector<int>> after_;
};

TEST(EventLoop, AContextRunsOneOperationAtATime) {
  Script script;
  script.Compute(0, 1);
  script.Compute(0, 2);
  script.Compute(1, 1);
  const Execution execution = script.Run(ExampleMachine(2));
  EXPECT_DOUBLE_EQ(execution.step_s, 3);
  EXPECT_DOUBLE_EQ(execution.ran[1].begin_s, 1);
  EXPECT_DOUBLE_EQ(execution.ran[2].end_s, 1);
  EXPECT_EQ(execution.ran[0].cause, kScript);
  EXPECT_EQ(execution.ran[1].cause, 0);
  EXPECT_EQ(execution.device_busy_s, (std::vector<double>{3, 1}));
}

TEST(EventLoop, OperationsRunInTheOrderInWhichTheyBecomeReady) {
  Script script;
  const int first = script.Compute(0, 1);
  const int other = script.Compute(1, 0.5);
  const int late = script.Compute(0, 1, {first});
  const int early = script.Compute(0, 1, {other});
  const Execution execution = script.Run(ExampleMachine(2));
  EXPECT_DOUBLE_EQ(execution.ran[early].begin_s, 1);
  EXPECT_DOUBLE_EQ(execution.ran[late].begin_s, 2);
  EXPECT_EQ(execution.ran[late].cause, early);
}

TEST(EventLoop, TheScriptPushesOneOperationAfterTheOther) {
  Machine machine = ExampleMachine(2);
  machine.host.push_s = 1;
  machine.host.cores = 4;
  Script script;
  script.Compute(0, 0.5);
  script.Compute(1, 0.5);
  const Execution execution = script.Run(machine);
  EXPECT_DOUBLE_EQ(execution.push_s, 2);
  EXPECT_DOUBLE_EQ(execution.ran[1].begin_s, 2);
  EXPECT_EQ(execution.ran[1].cause, kScript);
  EXPECT_DOUBLE_EQ(execution.step_s, 2.5);
}

TEST(EventLoop, ContextsShareTheCores) {
  Machine machine = ExampleMachine(2);
  machine.host.cores = 1;
  Script script;
  script.Compute(0, 1);
  script.Compute(1, 2);
  EXPECT_DOUBLE_EQ(script.Run(machine).step_s, 3);
  machine.host.cores = 2;
  machine.host.speed_at_once = {1, 0.5};
  // Both share the device for two seconds, then one runs alone.
  EXPECT_DOUBLE_EQ(script.Run(machine).step_s, 3);
}

TEST(EventLoop, OperationsOfAGpuShareIt) {
  Script script;
  script.Compute(0, 1);
  script.Compute(0, 2);
  const Execution execution = script.Run(ExampleGpus(1));
  EXPECT_DOUBLE_EQ(execution.ran[0].end_s, 2);
  EXPECT_DOUBLE_EQ(execution.ran[1].end_s, 3);
  Script launched;  // while one computes, the other is launched
  Operation operation;
  operation.host_s = 1;
  operation.compute_s = 1;
  launched.Add(operation);
  operation.host_s = 2;
  launched.Add(operation);
  const Execution apart = launched.Run(ExampleGpus(1));
  EXPECT_DOUBLE_EQ(apart.step_s, 3);
  EXPECT_DOUBLE_EQ(apart.ran[1].host_s, 2);
  EXPECT_DOUBLE_EQ(apart.ran[1].compute_s, 1);
  Script empty;  // an operation without time leaves the device to the others
  empty.Compute(0, 0);
  empty.Compute(0, 2);
  EXPECT_DOUBLE_EQ(empty.Run(ExampleGpus(1)).step_s, 2);
}

TEST(EventLoop, FlowsShareAPort) {
  Machine machine = ExampleGpus(3);
  machine.links[0].port_bytes_per_s = 10;
  Script apart;
  apart.Fetch(0, 1, 100);
  apart.Fetch(1, 2, 100);
  EXPECT_DOUBLE_EQ(apart.Run(machine).step_s, 10);
  Script shared;  // both leave device 0
  shared.Fetch(0, 1, 100);
  shared.Fetch(0, 2, 50);
  EXPECT_DOUBLE_EQ(shared.Run(machine).step_s, 15);
  machine.links[0].port_bytes_per_s = 0;
  EXPECT_DOUBLE_EQ(shared.Run(machine).step_s, 10);
  machine.links[0].group_bytes_per_s = 10;  // a bus
  EXPECT_DOUBLE_EQ(apart.Run(machine).step_s, 20);
}

TEST(EventLoop, ASlowLevelOfTheHierarchyIsShared) {
  Machine machine = ExampleGpus(4);
  machine.links[0].devices = 2;
  LinkLevel network = machine.links[0];
  network.devices = 4;
  network.latency_s = 3;
  network.bytes_per_s = RateTable({{1, 5}});
  network.port_bytes_per_s = 5;
  machine.links.push_back(network);
  Script script;
  script.Fetch(0, 1, 100);  // inside a host
  script.Fetch(0, 2, 100);  // both leave the same host
  script.Fetch(1, 3, 100);
  const Execution execution = script.Run(machine);
  EXPECT_DOUBLE_EQ(execution.ran[0].end_s, 10);
  EXPECT_DOUBLE_EQ(execution.ran[1].end_s, 43);
  ASSERT_EQ(execution.links.size(), 2u);
  EXPECT_EQ(execution.links[1].level, 1);
  EXPECT_DOUBLE_EQ(execution.links[1].bytes, 200);
  EXPECT_DOUBLE_EQ(execution.links[1].busy_s, 40);
  EXPECT_DOUBLE_EQ(execution.ran[1].link_s, 43);
}

TEST(EventLoop, RefusesACircle) {
  Script script;
  script.Compute(0, 1, {1});
  script.Compute(0, 1, {0});
  EXPECT_THROW(script.Run(ExampleMachine(1)), InternalError);
}

// Random operations that share nothing run as in a naive scheduler.
TEST(EventLoop, AgreesWithANaiveScheduler) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) {
      return static_cast<int>(random() % static_cast<unsigned>(n));
    };
    const int devices = 1 + below(4);
    Script script;
    for (int i = 0; i < 40; ++i) {
      std::vector<int> after;
      for (int j = 0; j < i; ++j) {
        if (below(8) == 0) after.push_back(j);
      }
      // Different sums for different sets, so that no two operations end together.
      script.Compute(below(devices), 1 + below(1000) / 1000.0 + i * 1e-5, after);
    }
    const Execution execution = script.Run(ExampleMachine(devices));
    // Takes, whenever a device is idle, its operation that has been ready for longest.
    const int count = 40;
    std::vector<double> end(count, -1), idle_since(static_cast<size_t>(devices), 0);
    for (int round = 0; round < count; ++round) {
      int best = -1;
      std::pair<double, double> best_times;
      for (int i = 0; i < count; ++i) {
        double ready = 0;
        bool waits = end[i] >= 0;
        for (int j : script.after()[i]) {
          waits = waits || end[j] < 0;
          ready = std::max(ready, end[j]);
        }
        if (waits) continue;
        const double begin =
            std::max(ready, idle_since[script.all().operations[i].device]);
        if (best < 0 || std::make_pair(begin, ready) < best_times) {
          best = i;
          best_times = {begin, ready};
        }
      }
      const Operation& operation = script.all().operations[best];
      end[best] = best_times.first + operation.compute_s;
      idle_since[operation.device] = end[best];
    }
    for (int i = 0; i < count; ++i) {
      EXPECT_NEAR(execution.ran[i].end_s, end[i], 1e-6)
          << "seed " << seed << ", operation " << i;
    }
    EXPECT_NEAR(execution.step_s, *std::max_element(end.begin(), end.end()), 1e-6);
  }
}

}  // namespace
}  // namespace tofu
