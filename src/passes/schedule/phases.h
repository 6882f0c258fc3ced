// Splits a partitioned graph into the forward graph, which runs when the script
// calls its block, and the backward graph, which runs when the script has its head
// gradients.
//
// Input:      a partitioned graph (partitioned.h).
// Output:     the forward graph: the nodes that the "output" heads need; the backward
//             graph: the other heads and the nodes that only they need. Entries
//             that cross become heads of the forward and variables of the backward
//             graph ("saved"). Outputs that partition kept with others stay heads.
// Invariants: no node is computed in both; variables appear where they are read.
// Errors:     none.
// Position:   after partition, which places nodes and names heads.
// Complexity: linear in nodes and edges.
#ifndef TOFU_PASSES_SCHEDULE_PHASES_H_
#define TOFU_PASSES_SCHEDULE_PHASES_H_

#include <optional>
#include <string>
#include <vector>

#include "passes/partition/partitioned.h"

namespace tofu {

struct PhaseGraph {
  Graph graph;
  std::vector<PartitionedHead> heads;  // without saved entries and kept outputs
};

// The backward graph's variable `name` is the forward graph's head number
// `forward_head`; both live on `worker`.
struct SavedEntry {
  std::string name;
  int forward_head = 0;
  int worker = 0;
};

struct Phases {
  int workers = 1;
  std::vector<PartitionedVariable> variables;
  PhaseGraph forward;
  std::optional<PhaseGraph> backward;  // empty if all heads are outputs
  std::vector<SavedEntry> saved;
};

Phases SplitPhases(Partitioned partitioned);

// Writes both graphs as DumpGraph does, and the entries saved between them.
std::string DumpPhases(const Phases& phases);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_PHASES_H_
