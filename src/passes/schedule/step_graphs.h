// The graphs that the executors of a training step run, as graphs: the text of a large
// one takes longer to write and to read than to make.
//
// Input:      a training graph with its table and plan; or the texts that partition and
//             phases have written.
// Output:     what the partitioned graph says but its nodes, and one graph for both
//             halves, or the forward and the backward one.
// Errors:     those of the passes; UserError(kGraph) for texts that are no such
//             documents.
// Position:   partition, phases, joint and control_deps in one.
// Complexity: theirs.
#ifndef TOFU_PASSES_SCHEDULE_STEP_GRAPHS_H_
#define TOFU_PASSES_SCHEDULE_STEP_GRAPHS_H_

#include <string>
#include <vector>

#include "passes/partition/partition.h"
#include "passes/partition/partitioned.h"
#include "passes/schedule/phases.h"

namespace tofu {

struct StepGraphs {
  Partitioned partitioned;  // without its graph
  std::vector<Graph> graphs;
};

// What the graphs of phases need before MXNet runs them: relays, and the order of
// their nodes.
void ArrangePhases(Phases* phases, bool control_deps = true);

// `joint`: one graph for both halves, where there are two.
StepGraphs MakeStepGraphs(const Graph& graph, const StrategyTable& table,
                          const Plan& plan, FetchKind fetch, bool joint);

StepGraphs ReadStepGraphs(const std::string& partitioned_json,
                          const std::string& phases_json);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_STEP_GRAPHS_H_
