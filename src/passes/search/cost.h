// Computes what an operator communicates under a plan: exact element counts over all
// groups of workers, including halos and nested cuts (the cost of paper section 5.1,
// the steps of section 5.2).
//
// After the first L steps there are G = k_1 * ... * k_L groups. Group g needs a
// box N of an input and owns a tile T of it: it fetches |N| - |N intersect T|.
// It must own a tile T of an output of which it has produced P: it fetches
//   C * |T| - |T intersect P|
// where C is the number of parts that are reduced into the output (1: none).
// If some step leaves an operator of random numbers whole, only digit 0 of that
// step computes it; the others need and produce nothing.
//
// Costs telescope: the cost of step L is Elements(first L steps) -
// Elements(first L - 1 steps), so they add up to what the workers of the
// generated graph fetch.
//
// Factorisation. An interval of dimension d depends on the digits of few steps
// only: those that cut d, or a variable that accesses d; call them S_d.
// The volume of a box is the product over d of its lengths l_d, so the sum over
// all groups is
//   sum over digits of all steps of (product over d of l_d(digits of S_d)).
// Dimensions that share steps, directly or through others, form a component, and
// no step is in two of them. Distributing the sum over the product leaves
//   (product of the parts of steps in no component) * product over components c
//     of (sum over digits of c's steps of (product over d in c of l_d)),
// which is exact, because every digit occurs in one factor. It costs as much as the
// largest component instead of all G groups. If a step gives only digit 0 a box, its
// digit is 0 instead of summed.
//
// Complexity: O(rank * digits of the largest component) time per slot; O(rank) if
//             no step cuts.
#ifndef TOFU_PASSES_SEARCH_COST_H_
#define TOFU_PASSES_SEARCH_COST_H_

#include <cstdint>
#include <vector>

#include "graph/cuts.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

// Steps of a plan: bit i is step i + 1.
using StepSet = uint32_t;

// Intervals by the digits of the steps they depend on, in mixed radix, the
// earliest step most significant.
struct Intervals {
  StepSet steps = 0;
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
};

// One box of a tensor for each group of workers.
struct GroupBoxes {
  std::vector<int> parts;  // of the steps
  std::vector<Intervals> dims;
  StepSet first_only = 0;  // steps of which only digit 0 has a box, others none
  int64_t volume = 0;      // summed over the groups

  int64_t groups() const;
};

// The tiles of a tensor after the first cuts.size() steps.
GroupBoxes TileBoxes(const Shape& shape, const Cuts& cuts, const std::vector<int>& parts);

// Sum of |box intersect box| over all groups.
int64_t SumOverlap(const GroupBoxes& a, const GroupBoxes& b);

// The regions that the groups need and produce if a node's operator is split by `cuts`.
class OperatorRegions {
 public:
  OperatorRegions(const Graph& graph, const StrategyTable& table, int node,
                  const Cuts& cuts, const std::vector<int>& parts);

  // Elements fetched, over all groups, when the tensor has these tiles.
  int64_t InputElements(int slot, const GroupBoxes& tiles) const;
  int64_t OutputElements(int index, const GroupBoxes& tiles) const;

 private:
  struct Slot {
    GroupBoxes boxes;
    int64_t copies = 1;  // parts that are reduced into an output
  };

  Slot MakeInput(const Graph& graph, const StrategyRow* row, int node, int slot,
                 const Cuts& cuts) const;
  Slot MakeOutput(const Graph& graph, const StrategyRow* row, int node, int index,
                  const Cuts& cuts, const std::vector<int>& parts) const;

  GroupBoxes ranges_;  // of the row's variables
  std::vector<Slot> inputs_;
  std::vector<Slot> outputs_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_COST_H_
