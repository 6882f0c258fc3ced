// Turns a partitioned graph into the graphs that executors run in a training step.
//
// Input:      a partitioned graph (partition.h).
// Output:     one graph for both halves of the step, and one for its random numbers;
//             or one for the forward and one for the backward half; and the places of
//             variables, outputs and gradients in them.
// Invariants: results stay the same; the passes add only control dependencies.
// Errors:     none.
// Position:   last of all passes: split off the random numbers, split into phases, join
//             the phases again if one executor runs both, and fix the order.
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

struct TrainingStep {
  int workers = 1;
  bool is_view = false;  // of one worker (partition/partition.h)
  std::vector<PartitionedVariable> variables;
  std::vector<PartitionedHead> forward_heads;
  std::vector<PartitionedHead> backward_heads;  // empty: there is no backward half
  // Joint: a graph that draws random numbers, if any are drawn, and one for both halves.
  // Apart: forward and, if there is one, backward.
  std::vector<Graph> graphs;
  bool is_joint = false;
  // Joint only: the number of nodes that the executor numbers before the backward half,
  // and in total, including variables and copies between workers.
  int forward_nodes = 0;
  int nodes = 0;
  // Variables of the second graph that are heads of the first.
  std::vector<SavedEntry> saved;
};

// Called with "phases" and a readable dump.
using StepCallback =
    std::function<void(const std::string& name, const std::string& dump)>;

// `joint`: whether to make one graph for both halves, if there are two and forward can
// run twice.
TrainingStep ScheduleStep(Partitioned partitioned, bool joint,
                          const StepCallback& on_pass = nullptr);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_TRAINING_STEP_H_
