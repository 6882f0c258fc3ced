// Turns the user's pins (tensor -> dimension cut at each step) into given cuts
// of tensor classes.
//
// A pin names any tensor: a variable, an operator ("fc1", its first output) or
// "split[1]". It lists one dimension for every step, or one for all of them;
// -1 leaves the tensor whole.
//
// Output:     [tensor class]: its cuts; kFree at every step without a pin.
// Errors:     UserError(kPlan) with a smallest set of pins that cannot hold: one
//             pin with an unknown name, with a list whose length differs from the
//             number of steps, or with a dimension that the tensor lacks or that does
//             not divide; or two pins that differ on tensors that must be cut alike,
//             with the reason why they must. All other pins are compatible: operators
//             adapt to every cut.
// Position:   after coalesce, before the search.
// Complexity: O(pins * N) for N nodes.
#ifndef TOFU_PASSES_SEARCH_PINS_H_
#define TOFU_PASSES_SEARCH_PINS_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "graph/cuts.h"
#include "graph/graph.h"
#include "passes/coarsen/coalesce.h"

namespace tofu {

using Pins = std::map<std::string, std::vector<int>>;

// Entry -> its cuts at each of `steps` steps. Of two pins of one tensor, the first holds.
std::map<int, Cuts> PinnedEntries(const Graph& graph, const Pins& pins, size_t steps);

std::vector<Cuts> ResolvePins(const Graph& graph, const CoarseGraph& coarse,
                              const Pins& pins, const std::vector<int>& parts);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_PINS_H_
