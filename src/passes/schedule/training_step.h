// Turns a partitioned graph into the graphs that executors run in a training step.
//
// Input:      a partitioned graph (partition.h).
// Output:     one graph for both halves of the step, and one for its random numbers;
//             or one for the forward and one for the backward half; and where
//             variables, outputs and gradients are in them.
// Invariants: what is computed stays the same; only order, control dependencies
//             and relays are added.
// Errors:     none.
// Position:   last of all passes: split off the random numbers, split into phases, relay
//             fetched regions, fix the order, and join the phases again where one
//             executor runs both.
// Complexity: that of control_deps.h, which dominates.
#ifndef TOFU_PASSES_SCHEDULE_TRAINING_STEP_H_
#define TOFU_PASSES_SCHEDULE_TRAINING_STEP_H_

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/partition/partitioned.h"
#include "passes/schedule/phases.h"

namespace tofu {

struct StepOptions {
  // One graph for both halves, if there are two and forward can run twice.
  bool joint = false;
  bool control_deps = true;  // turn off to measure the effect of the order
  bool relays = true;        // relay_regions.h; turn off for GPUs, which queue per stream
};

struct TrainingStep {
  int workers = 1;
  std::vector<PartitionedVariable> variables;
  std::vector<PartitionedHead> forward_heads;
  std::vector<PartitionedHead> backward_heads;  // none: there is no backward half
  // Joint: one for both halves, after one that draws random numbers, if there are any.
  // Apart: forward and maybe backward.
  std::vector<Graph> graphs;
  bool is_joint = false;
  // Joint only: how many nodes the executor numbers before the backward half, and in
  // total, including variables and copies between workers.
  int forward_nodes = 0;
  int nodes = 0;
  // Variables of the second graph that are heads of the first.
  std::vector<SavedEntry> saved;
};

// Called with "phases" and a readable dump.
using StepCallback =
    std::function<void(const std::string& name, const std::string& dump)>;

TrainingStep ScheduleStep(Partitioned partitioned, const StepOptions& options,
                          const StepCallback& on_pass = nullptr);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_TRAINING_STEP_H_
