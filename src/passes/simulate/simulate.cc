#include "passes/simulate/simulate.h"

#include <algorithm>
#include <string>
#include <utility>

#include "passes/schedule/segments.h"
#include "passes/simulate/live_memory.h"

namespace tofu {
namespace {

void Add(const Ran& ran, Spent* spent) {
  spent->host_s += ran.host_s;
  spent->compute_s += ran.compute_s;
  spent->link_s += ran.link_s;
}

CriticalPath FindPath(const Execution& execution) {
  CriticalPath path;
  const auto last =
      std::max_element(execution.ran.begin(), execution.ran.end(),
                       [](const Ran& a, const Ran& b) { return a.end_s < b.end_s; });
  if (last == execution.ran.end()) return path;
  int at = static_cast<int>(last - execution.ran.begin());
  for (; at != kScript; at = execution.ran[at].cause) {
    path.operations.push_back(at);
    Add(execution.ran[at], &path.spent);
  }
  std::reverse(path.operations.begin(), path.operations.end());
  path.script_s = execution.ran[path.operations.front()].begin_s;
  return path;
}

std::vector<WorkerUse> UseOfWorkers(const BoundGraph& bound, const ExecutorMemory& memory,
                                    const Operations& operations,
                                    const Execution& execution) {
  std::vector<WorkerUse> workers(memory.bytes_per_worker.size());
  for (int node = 0; node < bound.graph.num_nodes(); ++node) {
    if (!bound.graph.nodes[node].is_variable()) continue;
    workers[bound.workers[node]].static_bytes +=
        NumElements(bound.graph.shape({node, 0})) *
        DtypeBytes(bound.graph.dtype({node, 0}));
  }
  for (size_t i = 0; i < operations.operations.size(); ++i) {
    Add(execution.ran[i], &workers[operations.operations[i].device].spent);
  }
  for (size_t w = 0; w < workers.size(); ++w) {
    workers[w].allocated_bytes = workers[w].static_bytes + memory.bytes_per_worker[w];
    workers[w].busy_s = execution.device_busy_s[w];
    workers[w].waiting_s = std::max(execution.step_s - workers[w].busy_s, 0.0);
  }
  return workers;
}

}  // namespace

Simulation Simulate(const BoundGraph& bound, const MemoryTable& table,
                    const ExecutorMemory& memory, const OperatorCalls& calls,
                    const std::vector<Work>& works, const Machine& machine,
                    SimulationOptions options) {
  const int workers = static_cast<int>(memory.bytes_per_worker.size());
  if (workers > machine.device.count) {
    throw MachineError("machine " + machine.name + ": found " +
                       std::to_string(machine.device.count) +
                       " devices, expected at least " + std::to_string(workers) +
                       ", one for each worker");
  }
  Simulation simulation;
  simulation.operations =
      MakeOperations(bound, memory.blocks, machine, calls, works,
                     options.is_stock ? FindStockSegments(bound) : FindSegments(bound));
  simulation.execution = RunOperations(simulation.operations, machine);
  simulation.workers =
      UseOfWorkers(bound, memory, simulation.operations, simulation.execution);
  const auto live = LiveMemory(bound, table, memory.blocks, simulation.operations,
                               simulation.execution, workers, options.moments);
  for (size_t w = 0; w < live.size(); ++w) simulation.workers[w].live_bytes = live[w];
  simulation.path = FindPath(simulation.execution);
  return simulation;
}

}  // namespace tofu
