#include "support/recount_time.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "support/cut_values.h"
#include "support/recount.h"

namespace tofu {
namespace {

using Point = std::vector<int64_t>;
using Key = std::vector<int64_t>;

bool Holds(const Region& region, const Point& point) {
  if (region.size() != point.size()) return false;
  for (size_t d = 0; d < point.size(); ++d) {
    if (point[d] < region[d].begin || point[d] >= region[d].end) return false;
  }
  return true;
}

void ForEach(const Region& region, const std::function<void(const Point&)>& visit) {
  if (CountElements(region) == 0) return;
  Point point;
  for (const Span& span : region) point.push_back(span.begin);
  while (true) {
    visit(point);
    size_t d = point.size();
    while (d > 0 && ++point[d - 1] == region[d - 1].end) {
      point[d - 1] = region[d - 1].begin;
      --d;
    }
    if (d == 0) return;
  }
}

// A box of one copy of a tensor that a worker holds.
struct Source {
  const std::vector<int>* which;
  const Region* box;
  int copy;
};

// The step that separates two workers; the number of steps for a worker and itself.
size_t StepBetween(const std::vector<int>& a, const std::vector<int>& b) {
  size_t step = 0;
  while (step < a.size() && a[step] == b[step]) ++step;
  return step;
}

// The elements and tiles that cross the link of each step, over all workers.
struct Crossing {
  std::vector<int64_t> elements;
  std::vector<int64_t> tiles;

  explicit Crossing(size_t steps) : elements(steps, 0), tiles(steps, 0) {}

  // Adds a worker's reads of every element of `region`, once per copy, from the nearest
  // source.
  void Read(const std::vector<int>& which, const Region& region, int copies,
            const std::vector<Source>& sources) {
    std::set<std::pair<size_t, Key>> seen;
    ForEach(region, [&](const Point& point) {
      for (int copy = 0; copy < copies; ++copy) {
        const Source* best = nullptr;
        size_t nearest = 0;
        for (const Source& source : sources) {
          if (source.copy != copy || !Holds(*source.box, point)) continue;
          const size_t step = StepBetween(which, *source.which);
          if (best != nullptr && step <= nearest) continue;
          best = &source;
          nearest = step;
        }
        if (best == nullptr || nearest == which.size()) continue;
        ++elements[nearest];
        Key key = {copy};
        for (const Span& span : *best->box) key.push_back(span.begin);
        if (seen.emplace(nearest, key).second) ++tiles[nearest];
      }
    });
  }
};

class NodeTime {
 public:
  NodeTime(const Graph& graph, const StrategyTable& table, const Plan& plan,
           const Machine& machine, int node)
      : graph_(graph), table_(table), plan_(plan), machine_(machine), node_(node) {
    for (int part : plan.parts) workers_ *= part;
    for (int worker = 0; worker < workers_; ++worker) {
      parts_.push_back(RecountPart(graph, table, plan, node, worker));
    }
    const Device& device = machine.device;
    host_s_ = std::max(device.launch_s + (device.has_segments ? 0 : device.synchronize_s),
                       workers_ * machine.host.push_s);
  }

  double ComputeSeconds(Work work) const {
    const Node& node = graph_.nodes[node_];
    double read = 0;
    double written = 0;
    int busy = 0;
    for (const WorkerPart& part : parts_) {
      const bool makes =
          std::any_of(part.made.begin(), part.made.end(),
                      [](const Region& made) { return CountElements(made) > 0; });
      if (makes) ++busy;
      for (size_t i = 0; i < part.computed.size(); ++i) {
        read += Bytes(part.computed[i], node.inputs[i]);
      }
      for (size_t i = 0; i < part.made.size(); ++i) {
        written += Bytes(part.made[i], {node_, static_cast<int>(i)});
      }
    }
    if (work.kind == OperatorKind::kMovement) read = std::min(read, written);
    work.bytes = (read + written) / std::max(busy, 1);
    for (size_t step = 0; step < plan_.parts.size(); ++step) {
      const int cut = plan_.op_cuts[node_][step];
      if (cut >= 0 && !NumbersTerms(cut)) work.flops /= plan_.parts[step];
    }
    work.flops *= PartFullness();
    work.bytes *= PartFullness();
    const double seconds = tofu::ComputeSeconds(machine_, node.op, work);
    return machine_.device.is_gpu ? seconds : seconds / machine_.HostSpeed(workers_);
  }

  // The largest share of an operator's values on a worker, relative to the mean.
  double PartFullness() const {
    const StrategyRow* row = table_.row(node_);
    double fullness = 1;
    for (size_t v = 0; row != nullptr && v < row->vars.size(); ++v) {
      if (NumbersTerms(static_cast<int>(v))) continue;
      fullness *= FullnessOf(static_cast<double>(VariableExtent(graph_, *row, node_, v)),
                             plan_.op_cuts[node_], static_cast<int>(v));
    }
    return fullness;
  }

  // The largest share of a tensor's elements on a worker, relative to the mean.
  double TileFullness(NodeEntry entry) const {
    const Shape& shape = Entry(graph_.shapes, entry);
    double fullness = 1;
    for (size_t d = 0; d < shape.size(); ++d) {
      fullness *= FullnessOf(static_cast<double>(shape[d]),
                             Entry(plan_.tensor_cuts, entry), static_cast<int>(d));
    }
    return fullness;
  }

  Crossing Input(size_t slot) const {
    Crossing crossing(plan_.parts.size());
    std::vector<Source> sources;
    for (const WorkerPart& part : parts_) {
      sources.push_back({&part.which, &part.input_tiles[slot], part.term[slot]});
    }
    for (const WorkerPart& part : parts_) {
      crossing.Read(part.which, part.needed[slot], static_cast<int>(part.terms[slot]),
                    sources);
    }
    return crossing;
  }

  // The fetches over the fastest route; empty if there is none.
  std::vector<Crossing> InputRoute(size_t slot) const {
    Regions needed;
    Regions tiles;
    for (const WorkerPart& part : parts_) {
      needed.push_back(part.needed[slot]);
      tiles.push_back(part.input_tiles[slot]);
    }
    std::vector<State> states = {{Kind::kMade, {}, tiles}};
    std::vector<size_t> steps = StepsOfAlike(needed);
    Remove(&steps, [&](size_t step) { return LevelOf(step) == LevelOf(0); });
    AddStops(Kind::kPieces, needed, steps, &states);
    states.push_back({Kind::kPieces, {}, needed});
    return Fastest(states, {}, graph_.nodes[node_].inputs[slot]);
  }

  // The same for an output.
  std::vector<Crossing> OutputRoute(size_t index) const {
    Regions made;
    Regions tiles;
    for (const WorkerPart& part : parts_) {
      made.push_back(part.made[index]);
      tiles.push_back(part.output_tiles[index]);
    }
    const std::set<size_t> reduces = StepsThatReduce(index);
    const auto by_level = [&](size_t a, size_t b) {
      if (LevelOf(a) != LevelOf(b)) return LevelOf(a) < LevelOf(b);
      return reduces.count(a) < reduces.count(b);
    };
    std::vector<State> states = {{Kind::kMade, {}, made}};
    std::vector<size_t> steps = StepsOfAlike(made);
    Remove(&steps, [&](size_t step) { return reduces.count(step) == 0; });
    int highest = 0;
    for (size_t step : steps) highest = std::max(highest, LevelOf(step));
    Remove(&steps, [&](size_t step) { return LevelOf(step) == highest; });
    std::stable_sort(steps.begin(), steps.end(), by_level);
    if (AreDisjoint(made)) AddStops(Kind::kPartial, made, steps, &states);
    steps = StepsOfAlike(tiles);
    std::stable_sort(steps.begin(), steps.end(), by_level);
    AddStops(Kind::kPieces, tiles, steps, &states);
    states.push_back({Kind::kPieces, {}, tiles});
    return Fastest(states, reduces, {node_, static_cast<int>(index)});
  }

  // Whether the tensor waits at some step: then its fetch takes no route.
  bool Waits(NodeEntry entry) const {
    const std::vector<int> cuts = Entry(plan_.tensor_cuts, entry);
    return std::count(cuts.begin(), cuts.end(), kTermsOfSum) > 0;
  }

  // Whether any element crosses links other than the innermost.
  bool CrossesHosts(const std::vector<Crossing>& crossings) const {
    const size_t steps = plan_.parts.size();
    for (const Crossing& crossing : crossings) {
      for (size_t step = 0; step < steps; ++step) {
        if (LevelOf(step) > LevelOf(steps - 1) && crossing.elements[step] > 0)
          return true;
      }
    }
    return false;
  }

  // The time that links and host take for these fetches.
  double SecondsOf(const std::vector<Crossing>& crossings, NodeEntry entry) const {
    const int64_t each = BytesOfType(Entry(graph_.dtypes, entry));
    double seconds = host_s_ * static_cast<double>(crossings.size());
    for (const Crossing& crossing : crossings) {
      int group = workers_;
      for (size_t step = 0; step < plan_.parts.size(); ++step) {
        if (crossing.elements[step] > 0) {
          seconds += Seconds(
              group, static_cast<double>(crossing.elements[step] * each) / workers_,
              static_cast<double>(crossing.tiles[step]) / workers_);
        }
        group /= plan_.parts[step];
      }
    }
    return seconds;
  }

  // The fetch of the terms of each worker's tile; or two: the terms of its piece, and
  // then the other pieces.
  std::vector<Crossing> Output(size_t index) const {
    const size_t steps = plan_.parts.size();
    const SharedReduction way =
        RecountOutput(graph_, table_, plan_, node_, static_cast<int>(index));
    std::vector<Crossing> crossings(way.in_pieces ? 2 : 1, Crossing(steps));
    std::vector<Source> terms;
    std::vector<Source> pieces;
    for (size_t worker = 0; worker < parts_.size(); ++worker) {
      const WorkerPart& part = parts_[worker];
      terms.push_back({&part.which, &part.made[index], part.copy[index]});
      pieces.push_back({&part.which, &way.pieces[worker], 0});
    }
    for (size_t worker = 0; worker < parts_.size(); ++worker) {
      const WorkerPart& part = parts_[worker];
      crossings[0].Read(part.which, way.pieces[worker],
                        static_cast<int>(part.copies[index]), terms);
      if (!way.in_pieces) continue;
      crossings[1].Read(part.which, part.output_tiles[index], 1, pieces);
    }
    return crossings;
  }

  // Counted in nanoseconds; adds the bytes of each step to `bytes`.
  int64_t FetchNs(const std::vector<Crossing>& crossings, NodeEntry entry,
                  double fullness, bool may_overlap, double compute_s,
                  std::vector<int64_t>* bytes) const {
    const int64_t each = BytesOfType(Entry(graph_.dtypes, entry));
    double seconds = 0;
    double host_s = 0;
    int64_t all = 0;
    for (const Crossing& crossing : crossings) {
      int group = workers_;
      for (size_t step = 0; step < plan_.parts.size(); ++step) {
        const int64_t moved = crossing.elements[step] * each;
        (*bytes)[step] += moved;
        all += moved;
        if (moved > 0) {
          seconds += Seconds(group, static_cast<double>(moved) / workers_,
                             static_cast<double>(crossing.tiles[step]) / workers_);
        }
        group /= plan_.parts[step];
      }
      if (std::accumulate(crossing.elements.begin(), crossing.elements.end(),
                          int64_t{0}) > 0) {
        host_s += host_s_;
      }
    }
    if (all == 0) return 0;
    seconds *= fullness;
    if (may_overlap) seconds -= std::min(seconds, compute_s);
    if (machine_.device.is_gpu) {
      const Work packing{OperatorKind::kMovement, 0,
                         4 * fullness * static_cast<double>(all) / workers_};
      seconds += tofu::ComputeSeconds(machine_, "", packing);
    }
    return std::llround((seconds + host_s) * 1e9);
  }

  double host_s() const { return host_s_; }

 private:
  // Whether each part that a variable makes is as much work as the whole.
  bool NumbersTerms(int var) const {
    const StrategyRow* row = table_.row(node_);
    return row != nullptr && row->terms == var;
  }

  double FullnessOf(double extent, const std::vector<int>& cuts, int cut) const {
    double parts = 1;
    for (size_t step = 0; step < cuts.size(); ++step) {
      if (cuts[step] == cut) parts *= plan_.parts[step];
    }
    return std::ceil(extent / parts) * parts / extent;
  }

  template <typename List>
  typename List::value_type Entry(const List& list, NodeEntry entry) const {
    return list[static_cast<size_t>(graph_.first_entry[entry.node] + entry.index)];
  }

  double Bytes(const Region& region, NodeEntry entry) const {
    return static_cast<double>(CountElements(region) *
                               BytesOfType(Entry(graph_.dtypes, entry)));
  }

  // The slowest link within groups of this size.
  int LevelWithin(int group) const {
    int level = 0;
    for (int first = 0; first < workers_; first += group) {
      for (int other = first + 1; other < first + group; ++other) {
        level = std::max(level, machine_.LevelBetween(first, other));
      }
    }
    return level;
  }

  using Regions = std::vector<Region>;                      // [worker]
  using Division = std::vector<std::pair<size_t, size_t>>;  // step, dimension

  // The state of a region on the workers: as they have made it; as partial sums of the
  // terms of the steps that divide it; or in pieces of the needed regions, or whole.
  enum class Kind { kMade, kPartial, kPieces };
  struct State {
    Kind kind;
    Division division;
    Regions boxes;
  };

  int LevelOf(size_t step) const {
    int group = workers_;
    for (size_t i = 0; i < step; ++i) group /= plan_.parts[i];
    return LevelWithin(group);
  }

  template <typename Predicate>
  static void Remove(std::vector<size_t>* steps, Predicate predicate) {
    steps->erase(std::remove_if(steps->begin(), steps->end(), predicate), steps->end());
  }

  static bool IsSame(const Region& a, const Region& b) {
    for (size_t d = 0; d < a.size(); ++d) {
      if (a[d].begin != b[d].begin || a[d].end != b[d].end) return false;
    }
    return true;
  }

  static bool Begins(const Division& longer, const Division& shorter) {
    return shorter.size() < longer.size() &&
           std::equal(shorter.begin(), shorter.end(), longer.begin());
  }

  // The steps whose workers have the same region, innermost links first; empty unless the
  // regions' extents differ by at most one element.
  std::vector<size_t> StepsOfAlike(const Regions& regions) const {
    for (size_t d = 0; d < regions[0].size(); ++d) {
      const auto [least, most] = LengthsOf(regions, d);
      if (least < 1 || most > least + 1) return {};
    }
    std::vector<size_t> steps;
    for (size_t step = 0; step < plan_.parts.size(); ++step) {
      bool fits = true;
      for (size_t a = 0; a < regions.size(); ++a) {
        for (size_t b = 0; b < regions.size(); ++b) {
          std::vector<int> which = parts_[a].which;
          which[step] = parts_[b].which[step];
          if (which == parts_[b].which && !IsSame(regions[a], regions[b])) fits = false;
        }
      }
      if (fits) steps.push_back(step);
    }
    std::stable_sort(steps.begin(), steps.end(),
                     [&](size_t a, size_t b) { return LevelOf(a) < LevelOf(b); });
    return steps;
  }

  // The shortest and the longest extent along a dimension.
  static std::pair<int64_t, int64_t> LengthsOf(const Regions& regions, size_t d) {
    std::pair<int64_t, int64_t> lengths(std::numeric_limits<int64_t>::max(), 0);
    for (const Region& region : regions) {
      const int64_t length = region[d].end - region[d].begin;
      lengths = {std::min(lengths.first, length), std::max(lengths.second, length)};
    }
    return lengths;
  }

  bool AreDisjoint(const Regions& regions) const {
    for (const Region& a : regions) {
      for (const Region& b : regions) {
        if (IsSame(a, b)) continue;
        bool meet = true;
        for (size_t d = 0; d < a.size(); ++d) {
          meet = meet && std::max(a[d].begin, b[d].begin) < std::min(a[d].end, b[d].end);
        }
        if (meet) return false;
      }
    }
    return true;
  }

  std::set<size_t> StepsThatReduce(size_t index) const {
    std::set<size_t> steps;
    const StrategyRow* row = table_.row(node_);
    if (row == nullptr || index >= row->outputs.size()) return steps;
    for (size_t step = 0; step < plan_.parts.size(); ++step) {
      if (row->outputs[index].reduce.count(plan_.op_cuts[node_][step]) > 0) {
        steps.insert(step);
      }
    }
    return steps;
  }

  // The regions divided over the steps of one level, of two levels, ...; along each
  // dimension first, and the next one where it does not divide evenly.
  void AddStops(Kind kind, const Regions& regions, const std::vector<size_t>& steps,
                std::vector<State>* states) const {
    for (size_t first = 0; first < regions[0].size(); ++first) {
      State state{kind, {}, regions};
      for (size_t i = 0; i < steps.size(); ++i) {
        DivideOnce(first, steps[i], &state);
        if (state.division.empty()) continue;
        if (i + 1 == steps.size() || LevelOf(steps[i + 1]) != LevelOf(steps[i])) {
          states->push_back(state);
        }
      }
    }
  }

  void DivideOnce(size_t first, size_t step, State* state) const {
    const int parts = plan_.parts[step];
    const size_t rank = state->boxes[0].size();
    for (size_t i = 0; i < 2 * rank; ++i) {  // even divisions first
      const size_t d = (first + i) % rank;
      const int64_t extent = LengthsOf(state->boxes, d).first;
      if (extent < parts || (i < rank && extent % parts != 0)) continue;
      for (size_t worker = 0; worker < parts_.size(); ++worker) {
        Span& span = state->boxes[worker][d];
        span = PartOf(span, parts, parts_[worker].which[step]);
      }
      state->division.emplace_back(step, d);
      return;
    }
  }

  // The fetches of the fastest path from the first state, over others, to the last one.
  std::vector<Crossing> Fastest(const std::vector<State>& states,
                                const std::set<size_t>& reduces, NodeEntry entry) const {
    std::vector<Crossing> best;
    double least = std::numeric_limits<double>::infinity();
    std::vector<Crossing> way;
    const std::function<void(size_t, double)> visit = [&](size_t from, double seconds) {
      if (from + 1 == states.size()) {
        if (seconds < least) best = way;
        least = std::min(least, seconds);
        return;
      }
      for (size_t to = from == 0 ? 1 : 0; to < states.size(); ++to) {
        if (from == 0 && to + 1 == states.size()) continue;  // the direct fetch
        const std::vector<Crossing> move = MoveOf(states[from], states[to], reduces);
        if (move.empty()) continue;
        way.push_back(move[0]);
        visit(to, seconds + SecondsOf(move, entry));
        way.pop_back();
      }
    };
    visit(0, 0);
    return best;
  }

  // The fetch between two states; empty if there is none.
  std::vector<Crossing> MoveOf(const State& from, const State& to,
                               std::set<size_t> open) const {
    const bool adds_up = from.kind != Kind::kPieces;
    if (to.kind == Kind::kMade || (!adds_up && to.kind == Kind::kPartial)) return {};
    if (to.kind == Kind::kPartial && !Begins(to.division, from.division)) return {};
    if (!adds_up && !Begins(from.division, to.division)) return {};
    std::set<size_t> undone;  // steps at which pieces are gathered
    for (const auto& [step, dim] : from.division) {
      open.erase(step);
      undone.insert(step);
    }
    for (const auto& [step, dim] : to.division) undone.erase(step);
    std::set<size_t> adds = adds_up ? open : std::set<size_t>();
    if (to.kind == Kind::kPartial) {
      adds.clear();
      for (const auto& [step, dim] : to.division) {
        if (open.count(step) > 0) adds.insert(step);
      }
    }
    int copies = 1;
    for (size_t step : adds) copies *= plan_.parts[step];
    Crossing crossing(plan_.parts.size());
    for (size_t reader = 0; reader < parts_.size(); ++reader) {
      std::vector<Source> sources;
      for (size_t other = 0; other < parts_.size(); ++other) {
        const std::vector<int>& which = parts_[other].which;
        bool is_source = true;
        int copy = 0;
        for (size_t step = 0; step < which.size(); ++step) {
          const bool differs = which[step] != parts_[reader].which[step];
          const bool may_differ = !adds_up
                                      ? undone.count(step) > 0
                                      : open.count(step) == 0 || adds.count(step) > 0;
          if (differs && !may_differ) is_source = false;
          if (adds.count(step) > 0) copy = copy * plan_.parts[step] + which[step];
        }
        if (is_source) sources.push_back({&which, &from.boxes[other], copy});
      }
      crossing.Read(parts_[reader].which, to.boxes[reader], copies, sources);
    }
    return {crossing};
  }

  // The time of a worker's copies from others of its group of this size.
  double Seconds(int group, double bytes, double copies) const {
    const int level = LevelWithin(group);
    const LinkLevel& link = machine_.links[level];
    const int below = level == 0 ? 1 : machine_.links[level - 1].devices;
    double rate = link.bytes_per_s.At(bytes / copies);
    if (link.port_bytes_per_s > 0) {
      rate = std::min(rate, link.port_bytes_per_s / std::min(below, workers_));
    }
    if (link.group_bytes_per_s > 0) {
      rate = std::min(rate, link.group_bytes_per_s / std::min(link.devices, workers_));
    }
    return copies * link.latency_s + bytes / rate;
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const Plan& plan_;
  const Machine& machine_;
  const int node_;
  int workers_ = 1;
  std::vector<WorkerPart> parts_;  // [worker]
  double host_s_ = 0;
};

}  // namespace

RecountedTime& RecountedTime::operator+=(const RecountedTime& other) {
  ns += other.ns;
  for (size_t step = 0; step < bytes.size(); ++step) bytes[step] += other.bytes[step];
  added_bytes += other.added_bytes;
  routes += other.routes;
  output_routes += other.output_routes;
  return *this;
}

namespace {

// The faster one; a count of 0 means that there is no route.
RecountedTime Faster(const RecountedTime& direct, RecountedTime routed) {
  if (routed.ns == 0 || routed.ns >= direct.ns) return direct;
  routed.routes = 1;
  routed.added_bytes =
      std::accumulate(routed.bytes.begin(), routed.bytes.end(), int64_t{0}) -
      std::accumulate(direct.bytes.begin(), direct.bytes.end(), int64_t{0});
  return routed;
}

// Whether a node is an update, which a Trainer runs and whose outputs it copies directly.
bool IsUpdate(const Graph& graph, int node) {
  for (size_t h = 0; h < graph.head_roles.size(); ++h) {
    const bool is_update = graph.head_roles[h].rfind("update:", 0) == 0;
    if (is_update && graph.heads[h].node == node) return true;
  }
  return false;
}

}  // namespace

TimeRecount::TimeRecount(const Graph& graph, const StrategyTable& table,
                         const Machine& machine, const std::vector<Work>& works,
                         std::vector<bool> is_parameter)
    : graph_(graph),
      table_(table),
      machine_(machine),
      works_(works),
      is_parameter_(std::move(is_parameter)),
      read_(ReadTensors(graph)) {}

RecountedTime TimeRecount::OfNode(const Plan& plan, int node) const {
  RecountedTime total;
  total.bytes.assign(plan.parts.size(), 0);
  const Node& n = graph_.nodes[node];
  std::vector<int> outputs;
  for (int i = 0; i < n.num_outputs; ++i) {
    if (read_[static_cast<size_t>(graph_.first_entry[node] + i)]) outputs.push_back(i);
  }
  if (n.op.empty()) return total;
  const NodeTime time(graph_, table_, plan, machine_, node);
  const double compute_s = time.ComputeSeconds(works_[node]);
  total.ns = std::llround((compute_s + time.host_s()) * 1e9);
  if (outputs.empty()) return total;
  const auto overlaps = [&](NodeEntry entry) {
    return machine_.device.threads > 1 &&
           is_parameter_[static_cast<size_t>(graph_.first_entry[entry.node] +
                                             entry.index)];
  };
  for (size_t slot = 0; slot < n.inputs.size(); ++slot) {
    const NodeEntry entry = n.inputs[slot];
    const auto count = [&](const std::vector<Crossing>& moves) {
      RecountedTime one;
      one.bytes.assign(plan.parts.size(), 0);
      one.ns = time.FetchNs(moves, entry, time.PartFullness(), overlaps(entry), compute_s,
                            &one.bytes);
      return one;
    };
    const std::vector<Crossing> direct = {time.Input(slot)};
    const bool may_route = !time.Waits(entry) && time.CrossesHosts(direct);
    total += Faster(count(direct),
                    count(may_route ? time.InputRoute(slot) : std::vector<Crossing>()));
  }
  for (int index : outputs) {
    const NodeEntry entry{node, index};
    const auto count = [&](const std::vector<Crossing>& moves) {
      RecountedTime one;
      one.bytes.assign(plan.parts.size(), 0);
      one.ns = time.FetchNs(moves, entry, time.TileFullness(entry), false, compute_s,
                            &one.bytes);
      return one;
    };
    const std::vector<Crossing> direct = time.Output(static_cast<size_t>(index));
    const bool may_route =
        !IsUpdate(graph_, node) && !time.Waits(entry) && time.CrossesHosts(direct);
    RecountedTime best = Faster(
        count(direct), count(may_route ? time.OutputRoute(static_cast<size_t>(index))
                                       : std::vector<Crossing>()));
    std::swap(best.routes, best.output_routes);
    total += best;
  }
  return total;
}

RecountedTime TimeRecount::OfPlan(const Plan& plan) const {
  RecountedTime sum;
  sum.bytes.assign(plan.parts.size(), 0);
  for (int node = 0; node < graph_.num_nodes(); ++node) sum += OfNode(plan, node);
  return sum;
}

}  // namespace tofu
