// What an operator communicates under a plan: exact element counts over all
// groups of workers, halo and nested cuts included (paper section 5.1's cost,
// section 5.2's steps).
//
// After the first L steps there are G = k_1 * ... * k_L groups. Group g needs a
// box N of an input and owns a tile T of it: it fetches |N| - |N intersect T|.
// It owes itself a tile T of an output of which it has produced P: it fetches
//   C * |T| - |T intersect P|
// where C is the number of parts that are reduced into the output (1: none).
// An operator of random numbers that some step leaves whole is computed by
// digit 0 of that step only; the others need and produce nothing.
//
// Costs telescope: the cost of step L is Elements(first L steps) -
// Elements(first L - 1 steps), and the last one is what the workers of the
// generated graph fetch in all.
//
// Complexity: O(G * rank) time a slot; dimensions that no step cuts are free.
#ifndef TOFU_PASSES_COST_H_
#define TOFU_PASSES_COST_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/cuts.h"

namespace tofu {

// One interval for each group; a single one when it is the same for all.
struct Intervals {
  std::vector<int64_t> begin;
  std::vector<int64_t> end;

  bool uniform() const { return begin.size() == 1; }
};

// One box of a tensor for each group.
struct GroupBoxes {
  int groups = 1;
  std::vector<Intervals> dims;
  std::vector<char> idle;  // [group]: its box is empty; or no entries: none is
};

// The tiles of a tensor after the first cuts.size() steps.
GroupBoxes TileBoxes(const Shape& shape, const Cuts& cuts, const std::vector<int>& parts);

// Sum of |box| and sum of |box intersect box| over all groups.
int64_t SumVolume(const GroupBoxes& boxes);
int64_t SumOverlap(const GroupBoxes& a, const GroupBoxes& b);

// What the groups need and produce when a node's operator is split by `cuts`.
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
    int64_t volume = 0;  // summed over the groups
    int64_t copies = 1;  // parts that are reduced into an output
  };

  Slot MakeInput(const Graph& graph, const StrategyRow* row, int node, int slot,
                 const Cuts& cuts, const std::vector<int>& parts) const;
  Slot MakeOutput(const Graph& graph, const StrategyRow* row, int node, int index,
                  const Cuts& cuts, const std::vector<int>& parts) const;

  GroupBoxes ranges_;  // of the row's variables
  std::vector<Slot> inputs_;
  std::vector<Slot> outputs_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_COST_H_
