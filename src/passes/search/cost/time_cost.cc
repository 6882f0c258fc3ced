#include "passes/search/cost/time_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "graph/box.h"
#include "graph/head_roles.h"
#include "passes/search/cost/routes.h"

namespace tofu {
namespace {

int Product(const std::vector<int>& parts, size_t begin, size_t end) {
  int product = 1;
  for (size_t i = begin; i < end; ++i) product *= parts[i];
  return product;
}

// The number of parts into which cuts divide a tensor or an operator.
double Divided(const Cuts& cuts, const std::vector<int>& parts) {
  double divided = 1;
  for (size_t step = 0; step < cuts.size(); ++step) {
    if (IsCut(cuts[step])) divided *= parts[step];
  }
  return divided;
}

// The number of parts into which cuts divide each dimension.
Shape DividedSides(size_t sides, const Cuts& cuts, const std::vector<int>& parts) {
  Shape divided(sides, 1);
  for (size_t step = 0; step < cuts.size(); ++step) {
    if (IsCut(cuts[step])) divided[cuts[step]] *= parts[step];
  }
  return divided;
}

// `cuts` of the first `steps` steps; later ones cut nothing.
Cuts OnlyFirst(Cuts cuts, size_t steps) {
  for (size_t i = steps; i < cuts.size(); ++i) cuts[i] = kReplicated;
  return cuts;
}

// `cuts` without those that leave an operator's work whole: each part adds its terms.
Cuts WithoutTerms(const StrategyRow* row, Cuts cuts) {
  if (row == nullptr || row->terms < 0) return cuts;
  for (int& cut : cuts) cut = cut == row->terms ? kTerms : cut;
  return cuts;
}

// The indices at which tiles begin along each dimension, ascending.
TileStarts StartsOf(const GroupBoxes& tiles) {
  TileStarts all_starts;
  for (const Intervals& dim : tiles.dims) {
    std::vector<int64_t>& starts = all_starts.emplace_back();
    for (size_t i = 0; i < dim.begin.size(); ++i) {
      if (dim.begin[i] < dim.end[i]) starts.push_back(dim.begin[i]);
    }
    std::sort(starts.begin(), starts.end());
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  }
  return all_starts;
}

// The tiles of a grid that boxes touch: a range of tile numbers for each interval.
GroupBoxes InTiles(GroupBoxes boxes, const TileStarts& starts) {
  for (size_t d = 0; d < boxes.dims.size(); ++d) {
    Intervals& dim = boxes.dims[d];
    const auto begun = [&](int64_t at) {  // tiles that begin before `at`
      return std::lower_bound(starts[d].begin(), starts[d].end(), at) - starts[d].begin();
    };
    for (size_t i = 0; i < dim.begin.size(); ++i) {
      if (dim.begin[i] >= dim.end[i]) {
        dim.begin[i] = dim.end[i] = 0;
        continue;
      }
      dim.begin[i] = std::max<int64_t>(begun(dim.begin[i] + 1) - 1, 0);
      dim.end[i] = std::max<int64_t>(begun(dim.end[i]), 1);
    }
  }
  boxes.volume = SumOverlap(boxes, boxes);
  return boxes;
}

// The splits of `longer` after those of `shorter`, with which it begins.
TileSplits Rest(const TileSplits& longer, const TileSplits& shorter) {
  return {longer.begin() + static_cast<std::ptrdiff_t>(shorter.size()), longer.end()};
}

StepSet StepsOf(const TileSplits& splits) {
  StepSet steps = 0;
  for (const TileSplit& split : splits) steps |= StepSet{1} << split.step;
  return steps;
}

// Whether workers with different boxes in `made` share no element: then these boxes hold
// as many elements as `tiles`, which cover the tensor.
bool IsDisjoint(const GroupBoxes& made, const GroupBoxes& tiles) {
  const auto once = [](const GroupBoxes& boxes) {
    StepSet differ = 0;
    for (const Intervals& dim : boxes.dims) differ |= dim.steps;
    int64_t volume = boxes.volume;
    for (size_t step = 0; step < boxes.parts.size(); ++step) {
      if (!HasStep(differ, step)) volume /= boxes.parts[step];
    }
    return volume;
  };
  return made.first_only == 0 && once(made) == once(tiles);
}

FetchTime Faster(FetchTime direct, FetchTime routed) {
  if (!routed.HasRoute() ||
      Nanoseconds(routed.Counted()) >= Nanoseconds(direct.Counted())) {
    return direct;
  }
  routed.relayed_bytes = routed.Bytes() - direct.Bytes();
  return routed;
}

}  // namespace

int64_t FetchTime::Bytes() const {
  return std::accumulate(bytes_by_step.begin(), bytes_by_step.end(), int64_t{0});
}

int64_t Nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

TimeCost::TimeCost(const Graph& graph, const StrategyTable& table, const TimeModel& model,
                   std::vector<int> parts, TileShares shares)
    : graph_(graph),
      table_(table),
      model_(model),
      parts_(std::move(parts)),
      shares_(std::move(shares)),
      is_update_(graph.nodes.size(), false),
      workers_(Product(parts_, 0, parts_.size())),
      rates_(model.machine, workers_) {
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    if (RoleKind(HeadRole(graph, h)) == kUpdateKind)
      is_update_[graph.heads[h].node] = true;
  }
  const Machine& machine = model.machine;
  for (size_t step = 0; step < parts_.size(); ++step) {
    const int group = Product(parts_, step, parts_.size());
    int& level = levels_.emplace_back(0);
    for (int first = 0; first < workers_; first += group) {
      level = std::max(level, machine.LevelBetween(first, first + group - 1));
    }
  }
  while (inner_steps_ < levels_.size() && levels_[inner_steps_] > levels_.back()) {
    ++inner_steps_;
  }
  alike_ = FindAlike();
  for (int level : levels_) most_per_s_ = std::max(most_per_s_, rates_.Most(level));
  for (int worker : rates_.kinds()) {
    const Device& device = machine.DeviceOf(worker);
    host_s_ = std::max(
        {host_s_, device.launch_s + (device.has_segments ? 0 : device.synchronize_s),
         machine.host.push_s * workers_});
  }
}

std::vector<TimeCost::Alike> TimeCost::FindAlike() const {
  std::vector<Alike> groups;
  std::map<std::vector<int>, size_t> numbers;
  for (int worker = 0; worker < workers_; ++worker) {
    const std::vector<int> digits = WorkerDigits(worker, parts_);
    std::vector<int> key = {static_cast<int>(model_.machine.KindOf(worker))};
    for (size_t step = 0; step < parts_.size(); ++step) {
      if (!shares_.of(step).empty()) key.push_back(digits[step]);
    }
    const auto [number, is_new] = numbers.try_emplace(key, groups.size());
    if (is_new) groups.push_back({worker, digits, 0});
    ++groups[number->second].count;
    if (model_.machine.kinds.empty() && shares_.of_steps.empty()) {
      groups.back().count = workers_;
      break;
    }
  }
  for (Alike& alike : groups) {
    for (size_t step = 0; step < parts_.size(); ++step) {
      // The first piece of an even division is a largest one.
      if (shares_.of(step).empty()) alike.digits[step] = 0;
    }
  }
  return groups;
}

GroupTiles TimeCost::Tiles(const Shape& shape, const Cuts& cuts) const {
  GroupTiles tiles;
  for (size_t steps = 0; steps <= cuts.size(); ++steps) {
    tiles.owned.push_back(TileBoxes(shape, OnlyFirst(cuts, steps), division()));
  }
  tiles.starts = StartsOf(tiles.owned.back());
  tiles.fullness = Fullness(shape, cuts);
  for (const GroupBoxes& owned : tiles.owned) {
    tiles.grid.push_back(InTiles(owned, tiles.starts));
  }
  return tiles;
}

TimedSplit TimeCost::Split(int node, const Cuts& cuts) const {
  TimedSplit split;
  for (size_t steps = 0; steps <= cuts.size(); ++steps) {
    split.by.emplace_back(graph_, table_, node, cuts, division(), steps);
  }
  split.compute_s = ComputeSeconds(node, split.by.back(), cuts);
  split.fullness = Fullness(VarExtents(node), WithoutTerms(table_.row(node), cuts));
  return split;
}

Shape TimeCost::VarExtents(int node) const {
  const StrategyRow* row = table_.row(node);
  Shape extents;
  for (size_t v = 0; row != nullptr && v < row->vars.size(); ++v) {
    extents.push_back(VarExtent(*row, static_cast<int>(v), graph_, node));
  }
  return extents;
}

double TimeCost::Fullness(const Shape& extents, const Cuts& cuts,
                          const Alike& alike) const {
  const Shape divided = DividedSides(extents.size(), cuts, parts_);
  double fullness = 1;
  for (size_t d = 0; d < extents.size(); ++d) {
    int64_t side = extents[d];
    for (size_t step = 0; step < cuts.size(); ++step) {
      if (cuts[step] != static_cast<int>(d)) continue;
      side = division().Piece({0, side}, step, alike.digits[step]).size();
    }
    if (side * divided[d] == extents[d]) continue;
    fullness *= static_cast<double>(side * divided[d]) / static_cast<double>(extents[d]);
  }
  return fullness;
}

double TimeCost::Fullness(const Shape& extents, const Cuts& cuts) const {
  double fullness = 0;
  for (const Alike& alike : alike_) {
    fullness = std::max(fullness, Fullness(extents, cuts, alike));
    if (shares_.of_steps.empty()) break;
  }
  return fullness;
}

template <typename SecondsOf>
double TimeCost::Slowest(const Shape& extents, const Cuts& cuts,
                         SecondsOf seconds_of) const {
  double slowest = 0;
  double speeds = 0;
  for (const Alike& alike : alike_) {
    const double seconds = seconds_of(alike.worker, Fullness(extents, cuts, alike));
    slowest = std::max(slowest, seconds);
    if (seconds > 0) speeds += alike.count / seconds;
  }
  const bool is_mean = model_.is_balanced && alike_.size() > 1 && speeds > 0;
  return is_mean ? workers_ / speeds : slowest;
}

double TimeCost::ComputeSeconds(int node, const OperatorRegions& regions,
                                const Cuts& of_operator) const {
  const Node& n = graph_.nodes[node];
  const Cuts cuts = WithoutTerms(table_.row(node), of_operator);
  // The parts of steps that are not decided.
  const double divided = Product(parts_, cuts.size(), parts_.size());
  double groups = workers_ / divided;
  const StrategyRow* row = table_.row(node);
  if (row != nullptr &&
      row->random) {  // of the groups it is not split over, only one computes
    groups /= Product(parts_, 0, cuts.size()) / Divided(cuts, parts_);
  }
  const auto bytes_of = [&](bool is_output, int count) {
    double sum = 0;
    for (int i = 0; i < count; ++i) {
      const GroupBoxes& boxes = regions.Boxes(is_output, i);
      const NodeEntry entry = is_output ? NodeEntry{node, i} : n.inputs[i];
      sum += static_cast<double>(SumOverlap(boxes, boxes)) *
             static_cast<double>(DtypeBytes(graph_.dtype(entry)));
    }
    return sum / groups / divided;
  };
  const double read = bytes_of(false, static_cast<int>(n.inputs.size()));
  const double written = bytes_of(true, n.num_outputs);
  return Slowest(VarExtents(node), cuts, [&](int worker, double fullness) {
    return PartSeconds(node, worker, read * fullness, written * fullness,
                       divided * Divided(cuts, parts_) / fullness);
  });
}

double TimeCost::ElementwiseSeconds(int node, const Cuts& tensor_cuts) const {
  const Node& n = graph_.nodes[node];
  return Slowest(graph_.shape({node, 0}), tensor_cuts, [&](int worker, double fullness) {
    const double divided = Product(parts_, tensor_cuts.size(), parts_.size()) *
                           Divided(tensor_cuts, parts_) / fullness;
    const auto bytes_of = [&](NodeEntry entry) {
      return static_cast<double>(NumElements(graph_.shape(entry)) *
                                 DtypeBytes(graph_.dtype(entry))) /
             divided;
    };
    double read = 0;
    double written = 0;
    for (NodeEntry input : n.inputs) read += bytes_of(input);
    for (int i = 0; i < n.num_outputs; ++i) written += bytes_of({node, i});
    return PartSeconds(node, worker, read, written, divided);
  });
}

// The time of one of `divided` parts of an operator on this worker.
double TimeCost::PartSeconds(int node, int worker, double read, double written,
                             double divided) const {
  Work work = model_.works[node];
  const bool only_moves = work.kind == OperatorKind::kMovement;
  work.bytes = written + (only_moves ? std::min(read, written) : read);
  work.flops /= divided;
  const double seconds =
      tofu::ComputeSeconds(model_.machine, graph_.nodes[node].op, work, worker);
  return model_.machine.device.is_gpu ? seconds
                                      : seconds / model_.machine.HostSpeed(workers_);
}

// Counts the elements of every term of the steps `adds`.
std::vector<TimeCost::Held> TimeCost::HeldOfInput(const GroupBoxes& needed,
                                                  const GroupTiles& tiles,
                                                  StepSet adds) const {
  const GroupBoxes touched = InTiles(needed, tiles.starts);
  std::vector<Held> held;
  for (size_t step = 0; step < tiles.owned.size(); ++step) {
    const int64_t copies = Copies(adds, step);
    held.push_back({copies * SumOverlap(needed, tiles.owned[step]),
                    copies * SumOverlap(touched, tiles.grid[step])});
  }
  return held;
}

// Likewise.
std::vector<TimeCost::Held> TimeCost::HeldOfOutput(const GroupBoxes& needed, int index,
                                                   const TimedSplit& split,
                                                   StepSet adds) const {
  const TileStarts starts = StartsOf(split.by.back().Boxes(true, index));
  const GroupBoxes touched = InTiles(needed, starts);
  std::vector<Held> held;
  for (size_t step = 0; step < split.by.size(); ++step) {
    const GroupBoxes& produced = split.by[step].Boxes(true, index);
    const int64_t copies = Copies(adds, step);
    held.push_back({copies * SumOverlap(needed, produced),
                    copies * SumOverlap(touched, InTiles(produced, starts))});
  }
  return held;
}

// The pieces that workers of one tile hold: they are equal, one for each part that the
// steps of `splits` make.
std::vector<TimeCost::Held> TimeCost::HeldPieces(const GroupBoxes& tiles,
                                                 const TileSplits& splits) const {
  std::vector<Held> held;
  for (int step = 0; step <= static_cast<int>(tiles.parts.size()); ++step) {
    Held& now = held.emplace_back(Held{tiles.volume, tiles.groups()});
    for (const TileSplit& split : splits) {
      const int parts = parts_[split.step];
      if (split.step < step) {
        now.elements /= parts;
      } else {
        now.tiles *= parts;
      }
    }
  }
  return held;
}

int64_t TimeCost::Copies(StepSet steps, size_t from) const {
  int64_t copies = 1;
  for (size_t step = from; step < parts_.size(); ++step) {
    if (HasStep(steps, step)) copies *= parts_[step];
  }
  return copies;
}

// The terms of the steps `adds`; workers that differ at these steps all have terms of
// their pieces.
std::vector<TimeCost::Held> TimeCost::HeldTerms(const GroupBoxes& pieces,
                                                StepSet adds) const {
  std::vector<Held> held;
  for (size_t step = 0; step <= pieces.parts.size(); ++step) {
    const int64_t copies = Copies(adds, step);
    held.push_back({copies * pieces.volume, copies * pieces.groups()});
  }
  return held;
}

// The partial sums of an output: each worker has one, and those of workers that differ at
// `adds` are still to be added up.
std::vector<TimeCost::Held> TimeCost::HeldPartial(const GroupBoxes& needed,
                                                  const GroupBoxes& partial,
                                                  StepSet adds) const {
  const Shape one(needed.dims.size(), 1);
  std::vector<Held> held;
  for (size_t step = 0; step <= needed.parts.size(); ++step) {
    const int64_t copies = Copies(adds, step);
    held.push_back({copies * SumOverlapWithin(needed, partial, step),
                    copies * SumOverlapWithin(needed, partial, step, &one)});
  }
  return held;
}

// Adds the time and bytes of one fetch.
void TimeCost::AddFetch(const std::vector<Held>& held, int64_t element_bytes,
                        const GroupBoxes& needed, FetchTime* time) const {
  const double groups = static_cast<double>(needed.groups());
  for (size_t step = 0; step + 1 < held.size(); ++step) {
    const int64_t bytes = (held[step].elements - held[step + 1].elements) * element_bytes;
    time->bytes_by_step[step] += bytes;
    time->seconds += CopiesSeconds(
        step, static_cast<double>(bytes) / workers_,
        static_cast<double>(held[step].tiles - held[step + 1].tiles) / groups);
  }
  time->host_s += host_s_;
}

FetchTime TimeCost::Fetch(int node, const OpSlot& slot, const TimedSplit& split,
                          const GroupTiles& tiles) const {
  const OperatorRegions& regions = split.by.back();
  const NodeEntry entry = slot.is_output ? NodeEntry{node, slot.index}
                                         : graph_.nodes[node].inputs[slot.index];
  const int64_t bytes = DtypeBytes(graph_.dtype(entry));
  const GroupBoxes& owned = tiles.owned.back();
  const auto finished = [&](FetchTime time) {
    return Finished(std::move(time), slot.is_output ? tiles.fullness : split.fullness,
                    MayOverlap(slot), split.compute_s);
  };
  FetchTime time = NoTime(owned.parts.size());
  if (slot.is_output) {
    const OutputWay way = regions.CheapestWay(slot.index, owned);
    if (way.elements == 0) return time;
    const GroupBoxes made = regions.Made(slot.index, owned);
    const GroupBoxes pieces = Pieces(made, way.splits);
    const StepSet adds = regions.ReducesToMake(slot.index, owned);
    AddFetch(HeldOfOutput(pieces, slot.index, split, adds), bytes, pieces, &time);
    if (!way.splits.empty()) AddFetch(HeldPieces(made, way.splits), bytes, made, &time);
    // A route takes at least two fetches. Updated tensors are copied directly, outside of
    // the graph. Terms take no routes.
    const bool may_gain = !is_update_[node] && owned.terms == 0 && CrossesHosts(time) &&
                          (!way.splits.empty() || time.seconds > host_s_);
    time = finished(std::move(time));
    if (!may_gain) return time;
    return Faster(std::move(time),
                  finished(RoutedOutput(slot.index, split, owned, bytes)));
  }
  if (regions.InputElements(slot.index, owned) == 0) return time;
  const GroupBoxes needed = regions.Read(slot.index, owned);
  const StepSet adds = regions.AddsToRead(slot.index, owned);
  AddFetch(HeldOfInput(needed, tiles, adds), bytes, needed, &time);
  // A route takes at least one more fetch.
  const bool may_gain = owned.terms == 0 && CrossesHosts(time) && time.seconds > host_s_;
  time = finished(std::move(time));
  if (!may_gain) return time;
  return Faster(std::move(time), finished(RoutedTime(needed, tiles, bytes)));
}

FetchTime TimeCost::NoTime(size_t steps) const {
  FetchTime time;
  time.bytes_by_step.assign(steps, 0);
  return time;
}

// Whether some bytes cross more than the innermost links; routes save no others.
bool TimeCost::CrossesHosts(const FetchTime& direct) const {
  const size_t steps = std::min(inner_steps_, direct.bytes_by_step.size());
  return std::any_of(direct.bytes_by_step.begin(),
                     direct.bytes_by_step.begin() + static_cast<std::ptrdiff_t>(steps),
                     [](int64_t bytes) { return bytes > 0; });
}

// Returns the cheapest path from state 0 (excluded) and adds its moves to `time`.
std::vector<int> TimeCost::Cheapest(int states, const AddMove& add_move,
                                    FetchTime* time) const {
  const auto cost = [&](int from, int to) {
    FetchTime move = NoTime(time->bytes_by_step.size());
    if (!add_move(from, to, &move)) return std::numeric_limits<double>::infinity();
    return move.seconds + move.host_s;
  };
  std::vector<int> way = CheapestWay(states, cost);
  int from = 0;
  for (int state : way) {
    add_move(from, state, time);
    from = state;
  }
  return way;
}

// The time over the fastest route with stops; 0 if there is none.
FetchTime TimeCost::RoutedTime(const GroupBoxes& needed, const GroupTiles& tiles,
                               int64_t element_bytes) const {
  FetchTime time = NoTime(needed.parts.size());
  const std::vector<TileSplits> stops = RouteStops(needed, levels_);
  if (stops.empty()) return time;
  const int last = static_cast<int>(stops.size()) + 1;
  const auto splits_of = [&](int state) {
    return state == last ? TileSplits() : stops[static_cast<size_t>(state) - 1];
  };
  const auto add_move = [&](int from, int to, FetchTime* sum) {
    const bool is_direct = from == 0 && to == last;
    if (is_direct || (from > 0 && !MayGather(splits_of(from), splits_of(to)))) {
      return false;
    }
    const GroupBoxes boxes = Pieces(needed, splits_of(to));
    AddFetch(from == 0 ? HeldOfInput(boxes, tiles, 0)
                       : HeldPieces(boxes, Rest(splits_of(from), splits_of(to))),
             element_bytes, boxes, sum);
    return true;
  };
  for (int state : Cheapest(last + 1, add_move, &time)) {
    if (state != last) time.stops.push_back(splits_of(state));
  }
  return time;
}

// The same for an output. Its states: the regions as produced, partial sums, pieces of
// tiles, and the tiles.
FetchTime TimeCost::RoutedOutput(int index, const TimedSplit& split,
                                 const GroupBoxes& tiles, int64_t element_bytes) const {
  FetchTime time = NoTime(tiles.parts.size());
  const OperatorRegions& regions = split.by.back();
  const StepSet reduces = regions.Reduces(index);
  if (regions.IsWeighted(index)) return time;
  const std::vector<TileSplits> stops = OutputStops(tiles, reduces, levels_);
  std::vector<TileSplits> partial;
  GroupBoxes made = regions.Boxes(true, index);
  made.volume = SumOverlap(made, made);
  if (IsDisjoint(made, tiles)) partial = PartialStops(made, reduces, levels_);
  const int first_piece = static_cast<int>(partial.size()) + 1;
  const int last = first_piece + static_cast<int>(stops.size());
  if (last == 1) return time;
  const auto is_partial = [&](int state) { return state > 0 && state < first_piece; };
  const auto splits_of = [&](int state) -> TileSplits {
    if (state == 0 || state == last) return {};
    return is_partial(state) ? partial[static_cast<size_t>(state) - 1]
                             : stops[static_cast<size_t>(state - first_piece)];
  };
  const auto add_move = [&](int from, int to, FetchTime* sum) {
    const TileSplits before = splits_of(from);
    const TileSplits after = splits_of(to);
    const GroupBoxes boxes = Pieces(is_partial(to) ? made : tiles, after);
    const bool is_possible = from >= first_piece ? MayGather(before, after)
                             : is_partial(to)    ? from == 0 || MayGather(after, before)
                                                 : from > 0 || to < last;
    if (!is_possible) return false;
    AddFetch(from >= first_piece ? HeldPieces(boxes, Rest(before, after))
             : is_partial(to)    ? HeldTerms(boxes, StepsOf(Rest(after, before)))
             : from == 0
                 ? HeldOfOutput(boxes, index, split, reduces)
                 : HeldPartial(boxes, Pieces(made, before), reduces & ~StepsOf(before)),
             element_bytes, boxes, sum);
    return true;
  };
  for (int state : Cheapest(last + 1, add_move, &time)) {
    if (state == last) continue;
    (is_partial(state) ? time.partial : time.stops).push_back(splits_of(state));
  }
  return time;
}

// Scales the time to the largest region, and adds the part that computation hides and the
// time to pack.
FetchTime TimeCost::Finished(FetchTime time, double fullness, bool may_overlap,
                             double compute_s) const {
  time.seconds *= fullness;
  if (may_overlap) time.hidden_s = std::min(time.seconds, compute_s);
  time.seconds += PackSeconds(fullness * static_cast<double>(time.Bytes()) / workers_);
  return time;
}

int64_t TimeCost::LeastFetchNs(const OpSlot& slot, int64_t bytes,
                               double compute_s) const {
  if (bytes <= 0) return 0;
  double seconds = static_cast<double>(bytes) / workers_ / most_per_s_;
  if (MayOverlap(slot)) seconds = std::max(seconds - compute_s, 0.0);
  seconds += PackSeconds(static_cast<double>(bytes) / workers_);
  // One ns less, in case Fetch(), which rounds once more, rounds down.
  return std::max<int64_t>(Nanoseconds(seconds + host_s_) - 1, 0);
}

bool TimeCost::MayOverlap(const OpSlot& slot) const {
  const bool has_threads = std::all_of(
      rates_.kinds().begin(), rates_.kinds().end(),
      [&](int worker) { return model_.machine.DeviceOf(worker).threads > 1; });
  return has_threads && slot.reads_parameter;
}

double TimeCost::PackSeconds(double bytes) const {
  if (!model_.machine.device.is_gpu) return 0;
  double slowest = 0;
  for (int worker : rates_.kinds()) {
    slowest = std::max(
        slowest, tofu::ComputeSeconds(model_.machine, "",
                                      {OperatorKind::kMovement, 0, 4 * bytes}, worker));
  }
  return slowest;
}

double TimeCost::CopiesSeconds(size_t step, double bytes, double copies) const {
  if (bytes <= 0) return 0;
  copies = std::max(copies, 1.0 / workers_);
  return rates_.Seconds(levels_[step], bytes / copies, copies);
}

}  // namespace tofu
