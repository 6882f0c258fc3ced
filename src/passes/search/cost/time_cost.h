// Predicts the time of a plan's operator on a machine: the cost of searches whose
// objective is time. Figures are means over the workers; if parts or tiles are uneven,
// all wait for the largest, and the mean is scaled by its size over the mean size.
//
//   operator   the time of its part: the operator's arithmetic, divided by the parts that
//              it is split into, and the bytes of the part's regions (machine.h)
//   fetch      step i divides each group of workers; elements that a worker reads from
//              other parts of its group cross the link of that step: the slowest between
//              two workers of a group. With T_i the tile that the worker's group of the
//              first i steps owns, and N the region that the worker needs, these are
//                |N intersect T_(i-1)| - |N intersect T_i|,
//              and likewise for outputs, whose sources are the regions that groups have
//              produced.
//              Tiles of other workers are read one after the other: for each a latency,
//              and its bytes at the link's rate for that size, while all workers read.
//              A sum that several workers need whole takes two fetches if the graph has
//              two (cost.h): the terms of a worker's piece, and the other pieces. A fetch
//              that crosses more than the innermost links goes through the stops of a
//              route (routes.h) if that takes less time.
//   host       for every operator and every fetch, the longer of two times: its worker's
//              to launch it, and the script's thread's to hand it to all workers
//   overlap    parameters are ready before the step begins. If a device runs several
//              operators at a time, the fetch of a parameter hides behind the operator
//              that reads it, and only its excess counts. All other fetches count in
//              full: operators wait for them.
//   packing    on GPUs a fetch slices the sources and joins the slices, which reads and
//              writes every byte twice; nothing hides that
//
// On a mixed machine all wait for the device that needs longest for its part. A balanced
// model instead supposes that faster devices have larger parts, so that all take equally
// long: the harmonic mean. Copies take as long as over the slowest device's links.
//
// If only a plan's first steps are decided, the others count as if they divided
// everything evenly and communicated nothing.
//
// Errors:     none.
// Position:   used by search_tables.h and predict.h.
// Complexity: that of cost.h, for every step.
#ifndef TOFU_PASSES_SEARCH_COST_TIME_COST_H_
#define TOFU_PASSES_SEARCH_COST_TIME_COST_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "graph/graph.h"
#include "graph/reduction_tiles.h"
#include "graph/strategy_table.h"
#include "machine/machine.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/cost/cost.h"
#include "passes/search/cost/link_rates.h"

namespace tofu {

// A machine, and the work of every whole operator of a graph.
struct TimeModel {
  Machine machine;
  std::vector<Work> works;  // [node]
  bool is_balanced = false;
};

using TileStarts = std::vector<std::vector<int64_t>>;  // [dimension]

// The tiles of a tensor that groups of the first 0, 1, 2, ... steps own.
struct GroupTiles {
  std::vector<GroupBoxes> owned;  // [steps]
  std::vector<GroupBoxes> grid;   // the same, in numbers of tiles along each dimension
  TileStarts starts;              // where tiles begin
  double fullness = 1;            // the largest tile's elements over the mean
};

// An operator's part, and the regions of groups of the first 0, 1, 2, ... steps.
struct TimedSplit {
  std::vector<OperatorRegions> by;  // [steps]
  double compute_s = 0;
  double fullness = 1;  // the largest part's share over the mean
};

struct FetchTime {
  double seconds = 0;                  // on links and to pack
  double hidden_s = 0;                 // the part of these that computation hides
  double host_s = 0;                   // the host's, not in `seconds`
  std::vector<int64_t> bytes_by_step;  // bytes over each step's link, over all groups
  std::vector<TileSplits> partial;     // stops of a sum's route, before the others
  std::vector<TileSplits> stops;       // of the route, first to last
  int64_t relayed_bytes = 0;           // bytes that the route adds

  int64_t Bytes() const;
  bool HasRoute() const { return !partial.empty() || !stops.empty(); }
  double Counted() const { return seconds - hidden_s + host_s; }
};

class TimeCost {
 public:
  // `parts`: those of all steps. Cuts below may be those of the first steps only.
  TimeCost(const Graph& graph, const StrategyTable& table, const TimeModel& model,
           std::vector<int> parts, TileShares shares = {});

  GroupTiles Tiles(const Shape& shape, const Cuts& cuts) const;
  TimedSplit Split(int node, const Cuts& cuts) const;
  // The time of the part, which depends only on the profile of its cuts (patterns.h).
  double ComputeSeconds(int node, const OperatorRegions& regions, const Cuts& cuts) const;

  // The same for an element-wise operator whose tensors have these cuts.
  double ElementwiseSeconds(int node, const Cuts& tensor_cuts) const;

  FetchTime Fetch(int node, const OpSlot& slot, const TimedSplit& split,
                  const GroupTiles& tiles) const;
  // Bounds the counted time of a fetch of `bytes` over all groups, for an operator that
  // computes for `compute_s`.
  int64_t LeastFetchNs(const OpSlot& slot, int64_t bytes, double compute_s) const;

  // Whether computation may hide the slot's fetch.
  bool MayOverlap(const OpSlot& slot) const;
  // Whether fetches may take routes.
  bool HasRoutes() const { return inner_steps_ > 0; }
  double host_s() const { return host_s_; }  // the host's time per operator or fetch
  int LevelOf(size_t step) const { return levels_[step]; }
  const Machine& machine() const { return model_.machine; }

 private:
  // The elements of a needed region that a worker's group of some first steps holds,
  // summed over the workers. Functions return one for 0, 1, 2, ... steps.
  struct Held {
    int64_t elements = 0;
    int64_t tiles = 0;  // in which the elements lie
  };

  std::vector<Held> HeldOfInput(const GroupBoxes& needed, const GroupTiles& tiles,
                                StepSet adds) const;
  std::vector<Held> HeldOfOutput(const GroupBoxes& needed, int index,
                                 const TimedSplit& split, StepSet adds) const;
  std::vector<Held> HeldPieces(const GroupBoxes& tiles, const TileSplits& splits) const;
  std::vector<Held> HeldTerms(const GroupBoxes& pieces, StepSet adds) const;
  std::vector<Held> HeldPartial(const GroupBoxes& needed, const GroupBoxes& partial,
                                StepSet adds) const;
  // Adds a move between states of a region; false if there is none.
  using AddMove = std::function<bool(int from, int to, FetchTime* sum)>;
  std::vector<int> Cheapest(int states, const AddMove& add_move, FetchTime* time) const;
  FetchTime RoutedTime(const GroupBoxes& needed, const GroupTiles& tiles,
                       int64_t element_bytes) const;
  FetchTime RoutedOutput(int index, const TimedSplit& split, const GroupBoxes& tiles,
                         int64_t element_bytes) const;
  FetchTime NoTime(size_t steps) const;
  bool CrossesHosts(const FetchTime& direct) const;
  int64_t Copies(StepSet steps, size_t from) const;
  FetchTime Finished(FetchTime time, double fullness, bool may_overlap,
                     double compute_s) const;
  void AddFetch(const std::vector<Held>& held, int64_t element_bytes,
                const GroupBoxes& needed, FetchTime* time) const;
  // Workers whose devices and shares are alike, represented by the first of them.
  struct Alike {
    int worker = 0;
    std::vector<int> digits;
    int count = 0;
  };

  std::vector<Alike> FindAlike() const;
  Division division() const { return {parts_, shares_}; }
  Shape VarExtents(int node) const;
  // The largest part over the mean one, among workers that are alike, or among all.
  double Fullness(const Shape& extents, const Cuts& cuts, const Alike& alike) const;
  double Fullness(const Shape& extents, const Cuts& cuts) const;
  // The seconds that all workers wait, given each one's seconds by worker and fullness.
  template <typename SecondsOf>
  double Slowest(const Shape& extents, const Cuts& cuts, SecondsOf seconds_of) const;
  double PartSeconds(int node, int worker, double read, double written,
                     double divided) const;
  double PackSeconds(double bytes) const;
  double CopiesSeconds(size_t step, double bytes, double copies) const;

  const Graph& graph_;
  const StrategyTable& table_;
  const TimeModel& model_;
  const std::vector<int> parts_;
  const TileShares shares_;
  std::vector<bool> is_update_;  // [node]
  int workers_ = 1;
  LinkRates rates_;
  std::vector<Alike> alike_;  // cover all workers
  std::vector<int> levels_;   // [step]: level of its links
  size_t inner_steps_ = 0;    // the first step that crosses the innermost links only
  double most_per_s_ = 0;     // bytes per second of the fastest possible copy
  double host_s_ = 0;
};

int64_t Nanoseconds(double seconds);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_COST_TIME_COST_H_
