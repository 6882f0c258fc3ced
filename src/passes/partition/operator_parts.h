// Computes each worker's part of one operator under a plan: the regions it needs of the
// inputs, the regions it produces of the outputs, and the attributes of its
// instance (paper section 4.2: strategies; section 6: graph generation).
//
// Input:      a graph, a strategy table and a plan that fit each other, as their
//             readers check.
// Output:     one OperatorPart per worker; the inputs are unchanged.
// Errors:     UserError(kTable) if a row contradicts itself, UserError(kPlan) if the
//             plan mixes reductions.
// Complexity: O(k * d) for k workers and d accessed dimensions.
#ifndef TOFU_PASSES_PARTITION_OPERATOR_PARTS_H_
#define TOFU_PASSES_PARTITION_OPERATOR_PARTS_H_

#include <map>
#include <string>
#include <utility>
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
};

// The part of one worker.
OperatorPart PartOf(const Graph& graph, const StrategyTable& table, const Plan& plan,
                    int node, int worker);

// Returns one part per worker.
std::vector<OperatorPart> OperatorParts(const Graph& graph, const StrategyTable& table,
                                        const Plan& plan, int node);

// Computes parts once for all nodes that call an operator alike on tensors of the same
// shapes and are split alike, as in the layers and timesteps of most networks.
class KnownParts {
 public:
  KnownParts(const Graph& graph, const StrategyTable& table, const Plan& plan)
      : graph_(graph), table_(table), plan_(plan) {}

  // The parts of a node, valid until the next call.
  const std::vector<OperatorPart>& Of(int node);

 private:
  const Graph& graph_;
  const StrategyTable& table_;
  const Plan& plan_;
  std::map<std::string, std::vector<OperatorPart>> known_;
};

OutputReduction ReductionOf(const Graph& graph, const StrategyTable& table,
                            const Plan& plan, int node, int output);

// The tiles of an entry, one per worker.
std::vector<Box> EntryTiles(const Graph& graph, const Plan& plan, int entry);

// Computes tiles once for all entries of the same shape that are cut alike.
class KnownTiles {
 public:
  KnownTiles(const Graph& graph, const Plan& plan) : graph_(graph), plan_(plan) {}

  const std::vector<Box>& Of(int entry);

 private:
  const Graph& graph_;
  const Plan& plan_;
  std::map<std::pair<Shape, std::vector<int>>, std::vector<Box>> known_;
};

// Removes the attributes that only tofu reads ("__tofu_...__").
Attrs WithoutTofuAttrs(const Attrs& attrs);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_OPERATOR_PARTS_H_
