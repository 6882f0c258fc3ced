#include "support/recount.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/cut_values.h"

namespace tofu {
namespace {

int64_t Count(const Region& region) {
  int64_t count = 1;
  for (const Span& span : region) count *= std::max<int64_t>(span.end - span.begin, 0);
  return count;
}

Region Common(const Region& a, const Region& b) {
  Region common;
  if (a.size() != b.size()) return {{0, 0}};  // empty, for a scalar
  for (size_t d = 0; d < a.size(); ++d) {
    common.push_back({std::max(a[d].begin, b[d].begin), std::min(a[d].end, b[d].end)});
  }
  return common;
}

int64_t Bytes(int dtype) {
  switch (dtype) {
    case 3:  // uint8
    case 5:  // int8
    case 7:  // bool
      return 1;
    case 2:   // float16
    case 8:   // int16
    case 9:   // uint16
    case 12:  // bfloat16
      return 2;
    case 0:   // float32
    case 4:   // int32
    case 10:  // uint32
      return 4;
    case 1:   // float64
    case 6:   // int64
    case 11:  // uint64
      return 8;
    default:
      throw std::logic_error("no dtype has flag " + std::to_string(dtype));
  }
}

size_t EntryOf(const Graph& graph, NodeEntry entry) {
  return static_cast<size_t>(graph.first_entry[entry.node] + entry.index);
}

const StrategyRow* RowOf(const StrategyTable& table, int node) {
  const int row = table.node_rows[node];
  return row < 0 ? nullptr : &table.rows[row];
}

// A worker's part at each step; the last step changes fastest.
std::vector<int> PartsOfWorker(int worker, const std::vector<int>& parts) {
  std::vector<int> which;
  int workers = 1;
  for (int count : parts) workers *= count;
  for (int count : parts) {
    workers /= count;
    which.push_back(worker / workers);
    worker %= workers;
  }
  return which;
}

// The ends of the parts of a step, on multiples, found by trying.
std::vector<int64_t> EndsOf(int64_t size, int parts, const std::vector<int>& shares,
                            int64_t least, int64_t multiple) {
  std::vector<int64_t> ends;
  if (shares.empty()) {
    const int64_t units = (size + multiple - 1) / multiple;
    for (int part = 0; part < parts; ++part) {
      ends.push_back(std::min(size, multiple * PartOf({0, units}, parts, part).end));
    }
    return ends;
  }
  int64_t all = 0;
  for (int share : shares) all += share;
  int64_t sum = 0;
  int64_t begin = 0;
  for (int part = 0; part < parts; ++part) {
    sum += shares[part];
    int64_t best = -1;
    for (int64_t end = begin + least; end + (parts - part - 1) * least <= size; ++end) {
      if (end % multiple != 0 && end != begin + least) continue;
      if (best < 0 ||
          std::abs(end * all - size * sum) <= std::abs(best * all - size * sum)) {
        best = end;
      }
    }
    ends.push_back(begin = best);
  }
  ends.back() = size;
  return ends;
}

// The part of a span that a worker gets at a step of the plan.
Span PartOf(Span span, const Plan& plan, size_t step, int part) {
  const int parts = plan.parts[step];
  const int64_t size = span.end - span.begin;
  const std::vector<int> shares = step < plan.shares.of_steps.size()
                                      ? plan.shares.of_steps[step]
                                      : std::vector<int>();
  int64_t least = size / parts;
  int64_t later = 1;
  for (size_t next = step + 1; next < plan.parts.size(); ++next)
    later *= plan.parts[next];
  least = std::min(least, later);
  std::vector<int64_t> ends = EndsOf(size, parts, shares, least, 1);
  const std::vector<int64_t> rounded =
      EndsOf(size, parts, shares, 0, plan.shares.multiple);
  bool fits = true;
  for (int other = 0; other < parts; ++other) {
    const int64_t begin = other == 0 ? 0 : rounded[other - 1];
    const int64_t before = ends[other] - (other == 0 ? 0 : ends[other - 1]);
    const int64_t after = rounded[other] - begin;
    fits = fits && after >= least && 100 * after <= 102 * before;
  }
  if (fits) ends = rounded;
  return {span.begin + (part == 0 ? 0 : ends[part - 1]), span.begin + ends[part]};
}

// All of `extents`, divided into pieces step by step.
Region Piece(const Shape& extents, const std::vector<int>& cuts, const Plan& plan,
             const std::vector<int>& which) {
  Region piece;
  for (int64_t extent : extents) piece.push_back({0, extent});
  for (size_t step = 0; step < cuts.size(); ++step) {
    if (cuts[step] < 0) continue;
    Span& span = piece[cuts[step]];
    if (span.end - span.begin < plan.parts[step]) {
      throw std::logic_error("a plan cuts an extent into empty tiles");
    }
    span = PartOf(span, plan, step, which[step]);
  }
  return piece;
}

int64_t Value(const AffineForm& form, const Region& variables) {
  int64_t sum = form.constant;
  for (const AffineForm::Term& term : form.terms) {
    const Span& range = variables[term.var];
    sum += term.coef * (term.upper ? range.end - 1 : range.begin);
  }
  // Rounds down, also below zero.
  return sum >= 0 ? sum / form.divisor : -((-sum + form.divisor - 1) / form.divisor);
}

bool Mentions(const AffineForm& form, const std::vector<int>& cuts) {
  for (const AffineForm::Term& term : form.terms) {
    if (std::count(cuts.begin(), cuts.end(), term.var) > 0) return true;
  }
  return false;
}

// Steps that divide a tile into the workers' pieces of it, and their dimensions.
using Splitting = std::vector<std::pair<size_t, int>>;

// One operator, and one worker's part of it.
class Operator {
 public:
  Operator(const Graph& graph, const StrategyTable& table, const Plan& plan, int node,
           int worker)
      : graph_(graph),
        plan_(plan),
        node_(node),
        row_(RowOf(table, node)),
        cuts_(plan.op_cuts[node]),
        which_(PartsOfWorker(worker, plan.parts)) {
    if (row_ == nullptr) return;
    Shape extents;
    for (size_t v = 0; v < row_->vars.size(); ++v) {
      extents.push_back(VariableExtent(graph, *row_, node, v));
    }
    variables_ = Piece(extents, cuts_, plan, which_);
  }

  int64_t InputBytes(size_t slot) const {
    const NodeEntry entry = graph_.nodes[node_].inputs[slot];
    const Region needed = Needed(slot);
    return (TermsOf(slot).first * Count(needed) - Count(Common(needed, Tile(entry)))) *
           BytesOf(entry);
  }

  // The tile, or this worker's piece of it.
  Region PieceOf(int index, const Splitting& division) const {
    Region piece = Owned(index);
    for (const auto& [step, dimension] : division) {
      Span& span = piece[dimension];
      span = PartOf(span, plan_.parts[step], which_[step]);
    }
    return piece;
  }

  // The bytes to reduce the tile, or this worker's piece of it, from the parts of other
  // workers, and to gather the other pieces.
  int64_t OutputBytes(int index, const Splitting& division) const {
    const NodeEntry entry{node_, index};
    const Region tile = Owned(index);
    const Region piece = PieceOf(index, division);
    const int64_t own = Count(Common(Made(index), piece));
    return (Copies(index).first * Count(piece) - own + Count(tile) - Count(piece)) *
           BytesOf(entry);
  }

  WorkerPart Part() const {
    const Node& node = graph_.nodes[node_];
    WorkerPart part;
    part.which = which_;
    for (size_t slot = 0; slot < node.inputs.size(); ++slot) {
      part.needed.push_back(Needed(slot));
      part.computed.push_back(Needed(slot, true));
      part.input_tiles.push_back(Tile(node.inputs[slot]));
      part.terms.push_back(TermsOf(slot).first);
      part.term.push_back(TermsOf(slot).second);
    }
    for (int index = 0; index < node.num_outputs; ++index) {
      part.made.push_back(Made(index));
      part.output_tiles.push_back(Owned(index));
      part.copies.push_back(Copies(index).first);
      part.copy.push_back(Copies(index).second);
    }
    return part;
  }

  // The ways in which workers that need the same tile can share its reduction: none, or
  // in pieces. Steps that leave the tensor whole divide the tile, those of most parts
  // first, along the first dimension that divides evenly, or else can be cut, counted
  // from each dimension in turn. The piece of a step that reduces nothing is divided by
  // the steps that do.
  std::vector<Splitting> Divisions(int index) const {
    std::vector<Splitting> divisions(1);
    std::vector<size_t> steps;
    bool reduces_any = false;
    for (size_t step = 0; step < cuts_.size(); ++step) {
      reduces_any = reduces_any || (Reduces(index, step) && !Waits({node_, index}, step));
      if (plan_.tensor_cuts[EntryOf(graph_, {node_, index})][step] == kWhole) {
        steps.push_back(step);
      }
    }
    if (!reduces_any) return divisions;
    const auto by_reducing = [&](size_t a, size_t b) {
      return !Reduces(index, a) && Reduces(index, b);
    };
    std::stable_sort(steps.begin(), steps.end(), by_reducing);
    std::stable_sort(steps.begin(), steps.end(),
                     [&](size_t a, size_t b) { return plan_.parts[a] > plan_.parts[b]; });
    const Shape smallest = SmallestTile({node_, index});
    for (size_t first = 0; first < smallest.size(); ++first) {
      Splitting division = DivisionFrom(first, smallest, steps);
      std::stable_sort(
          division.begin(), division.end(),
          [&](const auto& a, const auto& b) { return by_reducing(a.first, b.first); });
      divisions.push_back(std::move(division));
    }
    return divisions;
  }

 private:
  static Region Nothing(Region region) {
    for (Span& span : region) span.end = span.begin;
    return region.empty() ? Region{{0, 0}} : region;
  }

  Region Needed(size_t slot, bool or_zeros = false) const {
    const Region all = All(graph_.nodes[node_].inputs[slot]);
    if (IsIdle()) return Nothing(all);
    if (row_ == nullptr || slot >= row_->inputs.size()) return all;
    const InputAccess& input = row_->inputs[slot];
    std::vector<int> only_first = input.only_first;
    if (or_zeros) {
      only_first.erase(std::remove(only_first.begin(), only_first.end(), row_->terms),
                       only_first.end());
    }
    if (IsBehindTheFirst(only_first, slot)) return Nothing(all);
    return Touched(input.dims, all, input.pad && Splits(input.pad->vars));
  }

  Region Made(int index) const {
    const Region all = All({node_, index});
    if (IsIdle()) return Nothing(all);
    if (row_ == nullptr || index >= static_cast<int>(row_->outputs.size())) return all;
    return Touched(row_->outputs[index].dims, all);
  }

  // The number of parts that are reduced into an output, and the number of this worker's.
  std::pair<int64_t, int> Copies(int index) const {
    std::pair<int64_t, int> copies = {1, 0};
    if (row_ == nullptr || index >= static_cast<int>(row_->outputs.size())) return copies;
    for (size_t step = 0; step < cuts_.size(); ++step) {
      if (row_->outputs[index].reduce.count(cuts_[step]) == 0) continue;
      if (Waits({node_, index}, step)) continue;
      copies.first *= plan_.parts[step];
      copies.second = copies.second * plan_.parts[step] + which_[step];
    }
    return copies;
  }

  int64_t BytesOf(NodeEntry entry) const {
    return Bytes(graph_.dtypes[EntryOf(graph_, entry)]);
  }

  Region All(NodeEntry entry) const {
    return Piece(graph_.shapes[EntryOf(graph_, entry)], {}, plan_, {});
  }

  Region Tile(NodeEntry entry) const {
    const size_t number = EntryOf(graph_, entry);
    return Piece(graph_.shapes[number], plan_.tensor_cuts[number], plan_, which_);
  }

  // The smallest extent of any worker's tile along each dimension.
  Shape SmallestTile(NodeEntry entry) const {
    const size_t number = EntryOf(graph_, entry);
    Shape least = graph_.shapes[number];
    for (int worker = 0; worker < plan_.workers(); ++worker) {
      const Region tile = Piece(graph_.shapes[number], plan_.tensor_cuts[number], plan_,
                                PartsOfWorker(worker, plan_.parts));
      for (size_t d = 0; d < tile.size(); ++d) {
        least[d] = std::min(least[d], tile[d].end - tile[d].begin);
      }
    }
    return least;
  }

  Splitting DivisionFrom(size_t first, Shape left,
                         const std::vector<size_t>& steps) const {
    Splitting division;
    const size_t rank = left.size();
    for (size_t step : steps) {
      for (size_t turn = 0; turn < 2 * rank; ++turn) {  // even divisions first
        const size_t d = (first + turn) % rank;
        if (left[d] < plan_.parts[step]) continue;
        if (turn < rank && left[d] % plan_.parts[step] > 0) continue;
        left[d] /= plan_.parts[step];
        division.emplace_back(step, static_cast<int>(d));
        break;
      }
    }
    return division;
  }

  bool Reduces(int index, size_t step) const {
    return row_ != nullptr && index < static_cast<int>(row_->outputs.size()) &&
           row_->outputs[index].reduce.count(cuts_[step]) > 0;
  }

  bool Splits(const std::vector<int>& vars) const {
    return std::any_of(vars.begin(), vars.end(), [this](int var) {
      return std::count(cuts_.begin(), cuts_.end(), var) > 0;
    });
  }

  bool Waits(NodeEntry entry, size_t step) const {
    return plan_.tensor_cuts[EntryOf(graph_, entry)][step] == kTermsOfSum;
  }

  // Whether the operator is split into the terms of its inputs.
  bool AddsTerms(size_t slot, size_t step) const {
    return row_ != nullptr && row_->terms >= 0 && slot < row_->inputs.size() &&
           cuts_[step] == row_->terms;
  }

  // The terms that a worker needs of every element, and the number of the one it owns.
  std::pair<int64_t, int> TermsOf(size_t slot) const {
    std::pair<int64_t, int> terms = {1, 0};
    for (size_t step = 0; step < cuts_.size(); ++step) {
      const bool waits = Waits(graph_.nodes[node_].inputs[slot], step);
      if (!waits || AddsTerms(slot, step)) continue;
      terms.first *= plan_.parts[step];
      terms.second = terms.second * plan_.parts[step] + which_[step];
    }
    return terms;
  }

  // What a worker must hold of an output: if it waits although the step makes no terms,
  // the others than the first hold zeros.
  Region Owned(int index) const {
    const Region tile = Tile({node_, index});
    for (size_t step = 0; step < cuts_.size(); ++step) {
      if (which_[step] == 0 || Reduces(index, step)) continue;
      if (Waits({node_, index}, step)) return Nothing(tile);
    }
    return tile;
  }

  // Whether some step splits one of `vars`, and this worker is not its first part. Terms
  // of an input that waits are all read.
  bool IsBehindTheFirst(const std::vector<int>& vars, size_t slot = 0) const {
    for (size_t step = 0; step < cuts_.size(); ++step) {
      if (which_[step] == 0) continue;
      if (AddsTerms(slot, step) && Waits(graph_.nodes[node_].inputs[slot], step))
        continue;
      if (std::count(vars.begin(), vars.end(), cuts_[step]) > 0) return true;
    }
    return false;
  }

  // Whether another worker draws this one's random numbers: if a step splits nothing,
  // they are drawn once for all its parts.
  bool IsIdle() const {
    return row_ != nullptr && row_->random && IsBehindTheFirst({kWhole});
  }

  // The region that the operator touches. Dimensions that no split affects are whole,
  // unless `exact`.
  Region Touched(const std::vector<DimAccess>& dims, const Region& all,
                 bool exact = false) const {
    Region touched = all;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].whole) continue;
      const bool moves = Mentions(dims[d].lo, cuts_) || Mentions(dims[d].hi, cuts_);
      if (!moves && !exact) continue;
      touched[d] = {Value(dims[d].lo, variables_), Value(dims[d].hi, variables_) + 1};
    }
    return Common(touched, all);  // padding is not fetched
  }

  const Graph& graph_;
  const Plan& plan_;
  const int node_;
  const StrategyRow* const row_;
  const std::vector<int>& cuts_;
  const std::vector<int> which_;  // [step]
  Region variables_;
};

}  // namespace

WorkerPart RecountPart(const Graph& graph, const StrategyTable& table, const Plan& plan,
                       int node, int worker) {
  return Operator(graph, table, plan, node, worker).Part();
}

Span PartOf(Span span, int count, int which) {
  const int64_t extent = span.end - span.begin;
  for (int piece = 0; piece <= which; ++piece) {
    if (piece > 0) span.begin = span.end;
    span.end = span.begin + extent / count + (extent % count > piece ? 1 : 0);
  }
  return span;
}

int64_t CountElements(const Region& region) { return Count(region); }

int64_t BytesOfType(int dtype) { return Bytes(dtype); }

std::vector<bool> ReadTensors(const Graph& graph) {
  std::vector<bool> read(graph.shapes.size(), false);
  std::vector<bool> visited(graph.nodes.size(), false);
  std::vector<NodeEntry> next = graph.heads;
  while (!next.empty()) {
    const NodeEntry entry = next.back();
    next.pop_back();
    read[EntryOf(graph, entry)] = true;
    if (visited[entry.node]) continue;
    visited[entry.node] = true;
    const std::vector<NodeEntry>& inputs = graph.nodes[entry.node].inputs;
    next.insert(next.end(), inputs.begin(), inputs.end());
  }
  return read;
}

int64_t VariableExtent(const Graph& graph, const StrategyRow& row, int node, size_t var) {
  const IndexVar& v = row.vars[var];
  if (v.kind == IndexVar::Extent::kConstant) return v.constant;
  if (v.kind == IndexVar::Extent::kTerms) return kMaxWorkers;  // no index depends on it
  const NodeEntry entry = v.kind == IndexVar::Extent::kOutput
                              ? NodeEntry{node, v.slot}
                              : graph.nodes[node].inputs[v.slot];
  return graph.shapes[EntryOf(graph, entry)][v.dim];
}

int64_t RecountNode(const Graph& graph, const StrategyTable& table, const Plan& plan,
                    const std::vector<bool>& read, int node) {
  const Node& n = graph.nodes[node];
  std::vector<int> outputs;
  for (int i = 0; i < n.num_outputs; ++i) {
    if (read[EntryOf(graph, {node, i})]) outputs.push_back(i);
  }
  if (n.op.empty() || outputs.empty()) return 0;
  int workers = 1;
  for (int count : plan.parts) workers *= count;
  int64_t bytes = 0;
  for (int worker = 0; worker < workers; ++worker) {
    const Operator op(graph, table, plan, node, worker);
    for (size_t slot = 0; slot < n.inputs.size(); ++slot) bytes += op.InputBytes(slot);
  }
  for (int index : outputs) {
    bytes += RecountOutput(graph, table, plan, node, index).bytes;
  }
  return bytes;
}

SharedReduction RecountOutput(const Graph& graph, const StrategyTable& table,
                              const Plan& plan, int node, int index) {
  std::vector<Operator> all;
  int workers = 1;
  for (int count : plan.parts) workers *= count;
  for (int worker = 0; worker < workers; ++worker) {
    all.emplace_back(graph, table, plan, node, worker);
  }
  SharedReduction least;
  least.bytes = std::numeric_limits<int64_t>::max();
  for (const Splitting& division : all[0].Divisions(index)) {
    int64_t sum = 0;
    for (const Operator& op : all) sum += op.OutputBytes(index, division);
    if (sum >= least.bytes) continue;
    least = {sum, !division.empty(), {}};
    for (const Operator& op : all) least.pieces.push_back(op.PieceOf(index, division));
  }
  return least;
}

int64_t Recount(const Graph& graph, const StrategyTable& table, const Plan& plan) {
  const std::vector<bool> read = ReadTensors(graph);
  int64_t bytes = 0;
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    bytes += RecountNode(graph, table, plan, read, static_cast<int>(node));
  }
  return bytes;
}

}  // namespace tofu
