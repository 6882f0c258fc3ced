// Computes a worker's part of one operator under a plan: the regions it needs of the
// inputs, the regions it produces of the outputs, and the attributes of its
// instance (paper section 4.2: strategies; section 6: graph generation).
//
// Input:      a graph, a strategy table and a plan that fit each other, as their
//             readers check.
// Output:     the worker's OperatorPart.
// Errors:     UserError(kTable) if a row contradicts itself, UserError(kPlan) if the
//             plan mixes reductions.
// Complexity: O(d) for d accessed dimensions.
#ifndef TOFU_PASSES_DIVIDE_OPERATOR_PARTS_H_
#define TOFU_PASSES_DIVIDE_OPERATOR_PARTS_H_

#include <optional>
#include <string>
#include <vector>

#include "graph/box.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"

namespace tofu {

struct InputRegion {
  Box box;             // may reach outside the tensor if the row pads
  bool zeros = false;  // this part gets zeros instead of the tensor's elements
  std::string fill = "0";
};

struct OperatorPart {
  // False if another worker computes this part: the first worker of a step at which a
  // random operator is not split computes for the others.
  bool active = true;
  std::vector<InputRegion> inputs;  // per input slot
  std::vector<Box> outputs;         // per output, hidden ones included
  Attrs attrs;                      // without tofu's own, with the part's sizes
};

// The reduction of an output's parts: workers whose digits at `steps` differ hold
// different terms.
struct OutputReduction {
  std::vector<int> steps;
  Reducer reduce = Reducer::kSum;
  std::optional<Weights> weights = {};  // of Reducer::kWeighted
};

// The part of one worker.
OperatorPart PartOf(const Graph& graph, const StrategyTable& table, const Plan& plan,
                    int node, int worker);

OutputReduction ReductionOf(const Graph& graph, const StrategyTable& table,
                            const Plan& plan, int node, int output);

// Removes the attributes that only tofu reads ("__tofu_...__").
Attrs WithoutTofuAttrs(const Attrs& attrs);

}  // namespace tofu

#endif  // TOFU_PASSES_DIVIDE_OPERATOR_PARTS_H_
