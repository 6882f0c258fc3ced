#include "support/recount_time.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

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

// Something that a worker holds: a box of one copy.
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

// What crosses the link of each step, over all workers.
struct Crossing {
  std::vector<int64_t> elements;
  std::vector<int64_t> tiles;

  explicit Crossing(size_t steps) : elements(steps, 0), tiles(steps, 0) {}

  // A worker reads every element of `region`, once per copy, from the nearest source.
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
      for (size_t i = 0; i < part.needed.size(); ++i) {
        read += Bytes(part.needed[i], node.inputs[i]);
      }
      for (size_t i = 0; i < part.made.size(); ++i) {
        written += Bytes(part.made[i], {node_, static_cast<int>(i)});
      }
    }
    if (work.kind == OperatorKind::kMovement) read = std::min(read, written);
    work.bytes = (read + written) / std::max(busy, 1);
    for (size_t step = 0; step < plan_.parts.size(); ++step) {
      if (plan_.op_cuts[node_][step] >= 0) work.flops /= plan_.parts[step];
    }
    const double seconds = tofu::ComputeSeconds(machine_, node.op, work);
    return machine_.device.is_gpu ? seconds : seconds / machine_.HostSpeed(workers_);
  }

  Crossing Input(size_t slot) const {
    Crossing crossing(plan_.parts.size());
    std::vector<Source> sources;
    for (const WorkerPart& part : parts_) {
      sources.push_back({&part.which, &part.input_tiles[slot], 0});
    }
    for (const WorkerPart& part : parts_) {
      crossing.Read(part.which, part.needed[slot], 1, sources);
    }
    return crossing;
  }

  // The same through pieces, which the workers of a host gather: every way to split what
  // they all need among them, beginning with each dimension.
  std::vector<std::vector<Crossing>> Routes(size_t slot) const {
    std::vector<std::vector<Crossing>> routes;
    const std::vector<size_t> steps = StepsWithinHosts(slot);
    for (size_t first = 0; first < parts_[0].needed[slot].size(); ++first) {
      std::vector<Region> pieces;
      std::vector<size_t> split;
      for (const WorkerPart& part : parts_) {
        pieces.push_back(PieceOf(part, slot, first, steps, &split));
      }
      if (split.empty()) continue;
      std::vector<Crossing> moves(2, Crossing(plan_.parts.size()));
      std::vector<Source> tiles;
      for (const WorkerPart& part : parts_) {
        tiles.push_back({&part.which, &part.input_tiles[slot], 0});
      }
      for (size_t worker = 0; worker < parts_.size(); ++worker) {
        const std::vector<int>& which = parts_[worker].which;
        moves[0].Read(which, pieces[worker], 1, tiles);
        std::vector<Source> held;
        for (size_t other = 0; other < parts_.size(); ++other) {
          bool is_mate = true;
          for (size_t step = 0; step < which.size(); ++step) {
            const bool may_differ =
                std::find(split.begin(), split.end(), step) != split.end();
            is_mate = is_mate && (may_differ || which[step] == parts_[other].which[step]);
          }
          if (is_mate) held.push_back({&parts_[other].which, &pieces[other], 0});
        }
        moves[1].Read(which, parts_[worker].needed[slot], 1, held);
      }
      routes.push_back(std::move(moves));
    }
    return routes;
  }

  // What the links and the host take for these fetches.
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

  // The terms of each worker's tile; or those of its piece, and then the other pieces.
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
                  bool may_overlap, double compute_s, std::vector<int64_t>* bytes) const {
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
    if (may_overlap) seconds -= std::min(seconds, compute_s);
    if (machine_.device.is_gpu) {
      const Work packing{OperatorKind::kMovement, 0,
                         4 * static_cast<double>(all) / workers_};
      seconds += tofu::ComputeSeconds(machine_, "", packing);
    }
    return std::llround((seconds + host_s) * 1e9);
  }

  double host_s() const { return host_s_; }

 private:
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

  // The steps that stay within hosts, and at which all workers of one need the same.
  std::vector<size_t> StepsWithinHosts(size_t slot) const {
    const auto differ = [](const Region& a, const Region& b) {
      for (size_t d = 0; d < a.size(); ++d) {
        if (a[d].begin != b[d].begin || a[d].end != b[d].end) return true;
      }
      return false;
    };
    std::vector<size_t> steps;
    int group = workers_;
    const int slowest = LevelWithin(workers_);
    for (size_t step = 0; step < plan_.parts.size(); ++step) {
      bool fits = LevelWithin(group) < slowest;
      group /= plan_.parts[step];
      for (const WorkerPart& a : parts_) {
        for (const WorkerPart& b : parts_) {
          std::vector<int> which = a.which;
          which[step] = b.which[step];
          if (which == b.which && differ(a.needed[slot], b.needed[slot])) fits = false;
        }
        for (size_t d = 0; d < a.needed[slot].size(); ++d) {
          const Span& other = parts_[0].needed[slot][d];
          const Span& own = a.needed[slot][d];
          if (own.end - own.begin != other.end - other.begin) fits = false;
        }
      }
      if (fits) steps.push_back(step);
    }
    return steps;
  }

  Region PieceOf(const WorkerPart& part, size_t slot, size_t first,
                 const std::vector<size_t>& steps, std::vector<size_t>* split) const {
    Region piece = part.needed[slot];
    split->clear();
    for (size_t step : steps) {
      for (size_t i = 0; i < piece.size(); ++i) {
        Span& span = piece[(first + i) % piece.size()];
        const int64_t extent = span.end - span.begin;
        if (extent == 0 || extent % plan_.parts[step] != 0) continue;
        const int64_t size = extent / plan_.parts[step];
        span.begin += size * part.which[step];
        span.end = span.begin + size;
        split->push_back(step);
        break;
      }
    }
    return piece;
  }

  // Copies of a worker to others of its group of this size.
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
  return *this;
}

RecountedTime RecountNodeTime(const Graph& graph, const StrategyTable& table,
                              const Plan& plan, const Machine& machine,
                              const std::vector<Work>& works,
                              const std::vector<bool>& is_parameter,
                              const std::vector<bool>& read, int node) {
  RecountedTime found;
  found.bytes.assign(plan.parts.size(), 0);
  const Node& n = graph.nodes[node];
  std::vector<int> outputs;
  for (int i = 0; i < n.num_outputs; ++i) {
    if (read[static_cast<size_t>(graph.first_entry[node] + i)]) outputs.push_back(i);
  }
  if (n.op.empty()) return found;
  const NodeTime time(graph, table, plan, machine, node);
  const double compute_s = time.ComputeSeconds(works[node]);
  found.ns = std::llround((compute_s + time.host_s()) * 1e9);
  if (outputs.empty()) return found;
  const auto overlaps = [&](NodeEntry entry) {
    return machine.device.threads > 1 &&
           is_parameter[static_cast<size_t>(graph.first_entry[entry.node] + entry.index)];
  };
  for (size_t slot = 0; slot < n.inputs.size(); ++slot) {
    const NodeEntry entry = n.inputs[slot];
    const auto count = [&](const std::vector<Crossing>& moves) {
      RecountedTime one;
      one.bytes.assign(plan.parts.size(), 0);
      one.ns = time.FetchNs(moves, entry, overlaps(entry), compute_s, &one.bytes);
      return one;
    };
    RecountedTime best = count({time.Input(slot)});
    const std::vector<std::vector<Crossing>> routes = time.Routes(slot);
    const auto fastest =
        std::min_element(routes.begin(), routes.end(), [&](const auto& a, const auto& b) {
          return time.SecondsOf(a, entry) < time.SecondsOf(b, entry);
        });
    if (fastest != routes.end() && count(*fastest).ns < best.ns) {
      const std::vector<int64_t> direct = best.bytes;
      best = count(*fastest);
      best.routes = 1;
      best.added_bytes =
          std::accumulate(best.bytes.begin(), best.bytes.end(),
                          -std::accumulate(direct.begin(), direct.end(), int64_t{0}));
    }
    found += best;
  }
  for (int index : outputs) {
    found.ns += time.FetchNs(time.Output(static_cast<size_t>(index)), {node, index},
                             false, compute_s, &found.bytes);
  }
  return found;
}

RecountedTime RecountTime(const Graph& graph, const StrategyTable& table,
                          const Plan& plan, const Machine& machine,
                          const std::vector<Work>& works,
                          const std::vector<bool>& is_parameter) {
  const std::vector<bool> read = ReadTensors(graph);
  RecountedTime sum;
  sum.bytes.assign(plan.parts.size(), 0);
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const RecountedTime one =
        RecountNodeTime(graph, table, plan, machine, works, is_parameter, read, node);
    sum += one;
  }
  return sum;
}

}  // namespace tofu
