// Turns the user's pins (variable -> dimension cut at each step) into given
// cuts of tensor classes.
//
// Errors: UserError(kPlan) for a name that is no variable, a list of another
//         length than the plan's steps, a dimension that the variable lacks or
//         that does not divide there, and two pins of one class that differ.
#ifndef TOFU_PASSES_PINS_H_
#define TOFU_PASSES_PINS_H_

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/coalesce.h"
#include "passes/cuts.h"

namespace tofu {

// [tensor class]: its cuts; kFree at every step where nothing is pinned.
std::vector<Cuts> ResolvePins(const Graph& graph, const CoarseGraph& coarse,
                              const std::map<std::string, std::vector<int>>& pins,
                              const std::vector<int>& parts);

}  // namespace tofu

#endif  // TOFU_PASSES_PINS_H_
