// Computes what an operator communicates under a plan: exact element counts over all
// groups of workers, including halos and nested cuts (the cost of paper section 5.1,
// the steps of section 5.2).
//
// After the first L steps there are G = k_1 * ... * k_L groups. Group g needs a
// box N of an input and owns a tile T of it: it fetches |N| - |N intersect T|.
// It must own a tile T of an output of which it has produced P: it fetches
//   C * |T| - |T intersect P|
// where C is the number of parts that are reduced into the output (1: none). If several
// groups own the same tile T of a reduced output, each may also reduce a piece U of it
// and gather the rest (reduction_tiles.h):
//   C * |U| - |U intersect P| + |T| - |U|
// The cheapest of these counts, and the partitioned graph takes it.
// Sums that wait. At some steps P the tiles are terms: their sum is the tensor. Let R be
// the steps whose parts are reduced into an output. Terms of steps in both stay where
// they are made. At steps in P alone the first worker has the tile and the others zeros.
// So the counts above hold for the tiles of first workers, and C is the number of parts
// of the steps in R alone. An input is the same with the roles exchanged: an operator
// that is split along its terms reads terms as they lie, and other inputs in the first
// worker only; other operators fetch all terms of the region.
// If some step leaves an operator of random numbers whole, only digit 0 of that
// step computes it; the others need and produce nothing.
//
// Costs telescope: the cost of step L is Elements(first L steps) -
// Elements(first L - 1 steps), so they add up to what the workers of the
// partitioned graph fetch.
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
// Least bytes. Whatever the order in which neighbouring steps of equal parts cut a
// tensor, its tiles lie on one grid (tile_grid.h). A box N shares with a tile at most
//   product over d of (the most that N's interval shares with one of the grid's),
// which is summed over the groups as above: a bound of the overlap for every order. It
// holds for pieces of a reduced tile too, which lie on a finer grid.
//
// Complexity: O(rank * digits of the largest component) time per slot, O(rank) times
//             that for a reduced output whose tile several groups own; O(rank) if no step
//             cuts.
#ifndef TOFU_PASSES_SEARCH_COST_COST_H_
#define TOFU_PASSES_SEARCH_COST_COST_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/short_vector.h"
#include "graph/cuts.h"
#include "graph/division.h"
#include "graph/graph.h"
#include "graph/reduction_tiles.h"
#include "graph/strategy_table.h"
#include "graph/tile_grid.h"

namespace tofu {

// Steps of a plan: bit i is step i + 1.
using StepSet = uint32_t;

template <typename Step>
bool HasStep(StepSet steps, Step step) {
  return (steps >> step & 1U) != 0;
}

// Intervals by the digits of the steps they depend on, in mixed radix, the
// earliest step most significant.
struct Intervals {
  using Bounds = ShortVector<int64_t, 4>;

  StepSet steps = 0;
  Bounds begin;
  Bounds end;
};

// The number of parts of each step.
using StepParts = ShortVector<int, 10>;

// One box of a tensor for each group of workers.
struct GroupBoxes {
  StepParts parts;
  std::vector<Intervals> dims;
  StepSet first_only = 0;  // steps of which only digit 0 has a box, others none
  int64_t volume = 0;      // summed over the groups
  StepSet terms = 0;       // steps whose groups hold terms of one sum

  int64_t groups() const;
};

// The tiles of a tensor after the first cuts.size() steps.
GroupBoxes TileBoxes(const Shape& shape, const Cuts& cuts, const Division& parts);

// Sum of |box intersect box| over all groups.
int64_t SumOverlap(const GroupBoxes& a, const GroupBoxes& b);

// The same, where boxes share at most `most` of each dimension.
int64_t SumOverlap(const GroupBoxes& a, const GroupBoxes& b, const Shape& most);

// Sum of |box of `reader` intersect box of `holder`| over all workers, each with all
// holders of its group of the first `steps` steps whose boxes may differ. With `most`,
// boxes share at most that much of each dimension.
int64_t SumOverlapWithin(const GroupBoxes& reader, const GroupBoxes& holder, size_t steps,
                         const Shape* most = nullptr);

// The length of the longest interval of each dimension, and of the shortest.
Shape LongestSides(const GroupBoxes& boxes);
Shape ShortestSides(const GroupBoxes& boxes);

// Bounds the elements that the groups' boxes can share with tiles, wherever on their grid
// the tiles lie. Keeps its sums; `boxes` must outlive it.
class TileOverlap {
 public:
  explicit TileOverlap(const GroupBoxes& boxes);

  int64_t Most(const TileGrid& tiles);

 private:
  // Dimensions that share steps, and the sums counted so far, by the grid's sides there.
  struct Component {
    std::vector<size_t> dims;
    std::vector<std::pair<std::vector<GridSide>, int64_t>> known;
  };

  int64_t Sum(const Component& component, const TileGrid& tiles) const;

  const GroupBoxes& boxes_;
  int64_t free_groups_ = 1;  // of the steps in no component
  std::vector<Component> components_;
};

// A way to bring what groups have produced of an output to its tiles.
struct OutputWay {
  int64_t elements = 0;  // fetched, over all groups
  TileSplits splits;  // divide tiles into pieces that groups reduce; empty: whole tiles
};

// The groups' pieces of their tiles; the steps of `splits` must not cut the tiles.
GroupBoxes Pieces(const GroupBoxes& tiles, const TileSplits& splits);

// The regions that groups need and produce when a node's operator is split by `cuts`.
// With `steps`, a worker has the regions of its whole group of the first `steps` steps.
class OperatorRegions {
 public:
  OperatorRegions(const Graph& graph, const StrategyTable& table, int node,
                  const Cuts& cuts, const Division& parts,
                  size_t steps = Cuts::kMaxSteps);

  // Elements fetched, over all groups, when the tensor has these tiles.
  int64_t InputElements(int slot, const GroupBoxes& tiles) const;
  int64_t OutputElements(int index, const GroupBoxes& tiles) const;
  // The way that fetches OutputElements(); the first of equal ones.
  OutputWay CheapestWay(int index, const GroupBoxes& tiles) const;

  // The boxes needed of an input, or produced of an output.
  const GroupBoxes& Boxes(bool is_output, int index) const {
    return is_output ? outputs_[index].boxes : inputs_[index].boxes;
  }
  // The steps whose parts are reduced into an output.
  StepSet Reduces(int index) const { return outputs_[index].reduces; }
  // Whether these parts have weights, so that they must be reduced at once.
  bool IsWeighted(int index) const { return outputs_[index].is_weighted; }

  // The boxes that groups read of an input with these tiles, and the steps whose terms
  // they add up when they read.
  GroupBoxes Read(int slot, const GroupBoxes& tiles) const;
  StepSet AddsToRead(int slot, const GroupBoxes& tiles) const {
    return tiles.terms & ~inputs_[slot].terms;
  }
  // The boxes that groups make of an output with these tiles, zeros left out, and the
  // steps whose parts they reduce to make them.
  GroupBoxes Made(int index, const GroupBoxes& tiles) const;
  StepSet ReducesToMake(int index, const GroupBoxes& tiles) const {
    return outputs_[index].reduces & ~tiles.terms;
  }

  // Bounds the elements fetched of an input of which each element is the sum of `terms`
  // terms. Workers own at most `shared` of the elements that they need.
  int64_t LeastInputElements(int slot, int64_t terms, int64_t shared) const;
  // Tiles in any order of the steps.
  struct Tiles {
    int64_t volume = 0;  // summed over the groups
    StepSet whole = 0;   // steps that do not cut them
    int64_t terms = 1;   // parts of the steps whose groups hold terms
  };
  // Bounds the elements fetched for such tiles, wherever on their grid they lie. Workers
  // have produced at most `shared` of their elements.
  int64_t LeastOutputElements(int index, const TileGrid& grid, const Tiles& tiles,
                              int64_t shared, TileOverlap* overlap) const;
  // Bounds the elements fetched for such tiles if workers may add up terms on the way:
  // the terms of an element meet in one worker, and each other owner fetches it at least
  // once.
  int64_t LeastSumElements(int index, int64_t volume, StepSet whole) const;

 private:
  struct Slot {
    GroupBoxes boxes;
    int64_t copies = 1;        // parts that are reduced into an output
    StepSet reduces = 0;       // the steps that make them
    StepSet terms = 0;         // the steps that split the operator along an input's terms
    bool is_weighted = false;  // whether the reduced parts have weights
  };

  // CheapestWay to the tiles that groups make.
  OutputWay CheapestWayTo(int index, const GroupBoxes& tiles) const;
  // The ways in which groups that own the same tile can share its reduction. `tile`: the
  // smallest one.
  std::vector<TileSplits> Tilings(int index, const Shape& tile, StepSet whole) const;
  // The grid of all tiles' pieces; only their sizes where splits of one dimension differ
  // in parts, as their nesting depends on the order of steps.
  TileGrid PieceGrid(int index, TileGrid tiles, const TileSplits& splits) const;
  Slot MakeInput(const Graph& graph, const StrategyRow* row, int node, int slot,
                 const Cuts& cuts) const;
  Slot MakeOutput(const Graph& graph, const StrategyRow* row, int node, int index,
                  const Cuts& cuts, const Division& parts) const;

  GroupBoxes ranges_;  // of the row's variables
  std::vector<Slot> inputs_;
  std::vector<Slot> outputs_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_COST_COST_H_
