// Moves nodes that draw random numbers to a graph of their own, which runs once, before
// the forward half. The second backward pass of a retained graph runs the forward half
// again, which must find the same numbers.
//
// Input:      a partitioned graph, whose nodes say whether they run once.
// Output:     the graph that draws; the given graph gets a variable for each entry of it
//             that it reads. Empty if no node runs once.
// Invariants: results stay the same.
// Errors:     none. If a node that runs once needs a variable of the step, such as a
//             sample of a computed distribution, the graph stays the same and there is no
//             result.
// Position:   before phases.
// Complexity: linear in nodes and edges.
#ifndef TOFU_PASSES_SCHEDULE_SPLIT_DRAWS_H_
#define TOFU_PASSES_SCHEDULE_SPLIT_DRAWS_H_

#include <optional>
#include <vector>

#include "passes/partition/partitioned.h"
#include "passes/schedule/phases.h"

namespace tofu {

struct Draws {
  Graph graph;                    // without heads if nothing is drawn
  std::vector<SavedEntry> drawn;  // variables of the given graph, and heads of `graph`
};

std::optional<Draws> SplitDraws(Partitioned* partitioned);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_SPLIT_DRAWS_H_
