#include "passes/search/cost/cost.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "graph/box.h"

namespace tofu {
namespace {

template <typename Step>
StepSet Bit(Step step) {
  return StepSet{1} << step;
}

// Number of digit combinations of `steps`.
size_t NumDigits(StepSet steps, const StepParts& parts) {
  size_t count = 1;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (HasStep(steps, i)) count *= static_cast<size_t>(parts[i]);
  }
  return count;
}

using Indices = std::shared_ptr<const std::vector<int>>;

// For every combination of digits of `steps`, the index of its digits of `some`, a
// subset; digits of steps in `zero` count as 0.
Indices MakeProjection(StepSet steps, StepSet some, StepSet zero,
                       const StepParts& parts) {
  std::vector<int> indices(1, 0);
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool in_some = HasStep(some, i);
    if (in_some) {
      for (int& index : indices) index *= parts[i];
    }
    if (!HasStep(steps, i) || HasStep(zero, i)) continue;
    const size_t before = indices.size();
    const size_t part = static_cast<size_t>(parts[i]);
    indices.resize(before * part);
    for (size_t j = before; j-- > 0;) {
      const int base = indices[j];
      for (size_t digit = 0; digit < part; ++digit) {
        indices[j * part + digit] = base + (in_some ? static_cast<int>(digit) : 0);
      }
    }
  }
  return std::make_shared<const std::vector<int>>(std::move(indices));
}

// Projections do not depend on tensors: there are few, and they are cached.
class Projections {
 public:
  Indices Find(StepSet steps, StepSet some, StepSet zero, const StepParts& parts) {
    if (parts != parts_ || num_indices_ > kMaxIndices) {
      known_.clear();
      num_indices_ = 0;
      parts_ = parts;
    }
    const auto [found, is_new] = known_.try_emplace({steps, some, zero});
    if (is_new) {
      found->second = MakeProjection(steps, some, zero, parts);
      num_indices_ += found->second->size();
    }
    return found->second;
  }

 private:
  static constexpr size_t kMaxIndices = size_t{1} << 20;

  StepParts parts_;
  std::map<std::array<StepSet, 3>, Indices> known_;
  size_t num_indices_ = 0;
};

Indices Project(StepSet steps, StepSet some, StepSet zero, const StepParts& parts) {
  thread_local Projections projections;
  return projections.Find(steps, some, zero, parts);
}

// The intervals into which the steps with cuts[i] == id divide [0, extent).
Intervals NestedCuts(int64_t extent, int id, const Cuts& cuts, const Division& parts) {
  Intervals intervals{0, {0}, {extent}};
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i] != id) continue;
    Intervals next{intervals.steps | Bit(i), {}, {}};
    for (size_t whole = 0; whole < intervals.begin.size(); ++whole) {
      const Range range{intervals.begin[whole], intervals.end[whole]};
      for (int digit = 0; digit < parts[i]; ++digit) {
        const Range piece = parts.Piece(range, i, digit);
        next.begin.push_back(piece.begin);
        next.end.push_back(piece.end);
      }
    }
    intervals = std::move(next);
  }
  return intervals;
}

// The elements fetched if groups reduce `copies` terms into pieces of the tiles, of which
// they have `shared` elements already, and gather the other pieces of each tile.
int64_t ElementsInPieces(int64_t copies, int64_t pieces, int64_t shared, int64_t tiles) {
  return copies * pieces - shared + tiles - pieces;
}

// The steps for whose cut `applies` holds.
template <typename Predicate>
StepSet StepsOf(const Cuts& cuts, Predicate applies) {
  StepSet steps = 0;
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (applies(cuts[i])) steps |= Bit(i);
  }
  return steps;
}

StepParts PartsOf(const Cuts& cuts, const Division& parts) {
  StepParts first;
  for (size_t i = 0; i < cuts.size(); ++i) first.push_back(parts[i]);
  return first;
}

bool HasVar(const std::vector<int>& vars, int var) {
  return std::find(vars.begin(), vars.end(), var) != vars.end();
}

int64_t FloorDivide(int64_t numerator, int64_t divisor) {
  const int64_t quotient = numerator / divisor;
  return numerator % divisor < 0 ? quotient - 1 : quotient;
}

// Values of `form` by the digits of `steps`, which include its variables'.
Intervals::Bounds Evaluate(const AffineForm& form, const GroupBoxes& ranges,
                           StepSet steps) {
  Intervals::Bounds values(NumDigits(steps, ranges.parts), form.constant);
  for (const AffineForm::Term& term : form.terms) {
    const Intervals& range = ranges.dims[term.var];
    const Indices indices = Project(steps, range.steps, 0, ranges.parts);
    for (size_t g = 0; g < values.size(); ++g) {
      const int i = (*indices)[g];
      values[g] += term.coef * (term.upper ? range.end[i] - 1 : range.begin[i]);
    }
  }
  for (int64_t& value : values) value = FloorDivide(value, form.divisor);
  return values;
}

// The part of [0, extent) that `access` touches, clipped. If none of its variables is
// split, the whole dimension, as for the unsplit operator, unless `exact`.
Intervals AccessIntervals(const DimAccess& access, int64_t extent,
                          const GroupBoxes& ranges, bool exact) {
  if (access.whole) return {0, {0}, {extent}};
  StepSet steps = 0;
  for (const AffineForm* form : {&access.lo, &access.hi}) {
    for (const AffineForm::Term& term : form->terms) {
      steps |= ranges.dims[term.var].steps;
    }
  }
  if (steps == 0 && !exact) return {0, {0}, {extent}};
  Intervals intervals{steps, Evaluate(access.lo, ranges, steps),
                      Evaluate(access.hi, ranges, steps)};
  for (int64_t& begin : intervals.begin) begin = std::clamp<int64_t>(begin, 0, extent);
  for (int64_t& end : intervals.end) end = std::clamp<int64_t>(end + 1, 0, extent);
  return intervals;
}

GroupBoxes AccessBoxes(const std::vector<DimAccess>& dims, const Shape& shape,
                       const GroupBoxes& ranges, bool exact = false) {
  GroupBoxes boxes{ranges.parts, {}, ranges.first_only, 0};
  boxes.dims.reserve(shape.size());
  static const DimAccess kWhole;
  for (size_t d = 0; d < shape.size(); ++d) {
    boxes.dims.push_back(
        AccessIntervals(d < dims.size() ? dims[d] : kWhole, shape[d], ranges, exact));
  }
  return boxes;
}

// Lengths by the digits of `steps`.
struct Lengths {
  StepSet steps = 0;
  std::vector<int64_t> values;
};

int64_t Length(const Intervals& a, size_t i, const Intervals& b, size_t j) {
  return std::max<int64_t>(
      std::min(a.end[i], b.end[j]) - std::max(a.begin[i], b.begin[j]), 0);
}

// The overlap of a and b; digits of the steps in `zero` are 0.
void Overlap(const Intervals& a, const Intervals& b, StepSet zero, const StepParts& parts,
             Lengths* lengths) {
  const StepSet steps = a.steps | b.steps;
  lengths->steps = steps & ~zero;
  if ((steps & zero) == 0 && (a.steps == 0 || b.steps == 0 || a.steps == b.steps)) {
    const size_t of_a = a.steps == 0 ? 0 : 1;
    const size_t of_b = b.steps == 0 ? 0 : 1;
    lengths->values.resize(std::max(a.begin.size(), b.begin.size()));
    for (size_t g = 0; g < lengths->values.size(); ++g) {
      lengths->values[g] = Length(a, g * of_a, b, g * of_b);
    }
    return;
  }
  const Indices of_a = Project(steps, a.steps, zero, parts);
  const Indices of_b = Project(steps, b.steps, zero, parts);
  lengths->values.resize(of_a->size());
  for (size_t g = 0; g < of_a->size(); ++g) {
    lengths->values[g] = Length(a, (*of_a)[g], b, (*of_b)[g]);
  }
}

// The sum over the digits of the component of lengths[first]. Removes the component
// from lengths[first .. count) and closes the gaps.
int64_t SumComponent(std::vector<Lengths>* lengths, size_t first, size_t* count,
                     const StepParts& parts) {
  thread_local std::vector<int64_t> products;
  StepSet steps = (*lengths)[first].steps;
  size_t end = first + 1;  // of the component
  for (size_t i = end; i < *count; ++i) {
    if (((*lengths)[i].steps & steps) == 0) continue;
    steps |= (*lengths)[i].steps;
    std::swap((*lengths)[i], (*lengths)[end++]);
    i = end - 1;  // lengths seen before may belong to it now
  }
  *count = end;
  int64_t sum = 0;
  if (end == first + 1) {
    for (int64_t length : (*lengths)[first].values) sum += length;
    return sum;
  }
  products.assign(NumDigits(steps, parts), 1);
  for (size_t d = first; d < end; ++d) {
    const Indices indices = Project(steps, (*lengths)[d].steps, 0, parts);
    for (size_t g = 0; g < products.size(); ++g) {
      products[g] *= (*lengths)[d].values[(*indices)[g]];
    }
  }
  for (int64_t product : products) sum += product;
  return sum;
}

int64_t Sum(const GroupBoxes& a, const GroupBoxes& b, const Shape* most = nullptr) {
  TOFU_CHECK(a.parts.size() == b.parts.size() && a.dims.size() == b.dims.size())
      << "boxes of " << a.parts.size() << " steps, rank " << a.dims.size()
      << " do not compare with others";
  thread_local std::vector<Lengths> lengths;
  const StepSet zero = a.first_only | b.first_only;
  StepSet used = zero;
  if (lengths.size() < a.dims.size()) lengths.resize(a.dims.size());
  for (size_t d = 0; d < a.dims.size(); ++d) {
    Overlap(a.dims[d], b.dims[d], zero, a.parts, &lengths[d]);
    used |= lengths[d].steps;
    if (most == nullptr) continue;
    for (int64_t& length : lengths[d].values) length = std::min(length, (*most)[d]);
  }
  int64_t sum = static_cast<int64_t>(NumDigits(~used, a.parts));
  for (size_t next = 0; next < a.dims.size();) {
    size_t end = a.dims.size();
    sum *= SumComponent(&lengths, next, &end, a.parts);
    next = end;
  }
  return sum;
}

// The best of the intervals' lengths in each dimension.
template <typename Better>
Shape Sides(const GroupBoxes& boxes, Better better) {
  Shape sides;
  for (const Intervals& dim : boxes.dims) {
    int64_t& side = sides.emplace_back(dim.end[0] - dim.begin[0]);
    for (size_t i = 1; i < dim.begin.size(); ++i) {
      side = better(side, dim.end[i] - dim.begin[i]);
    }
  }
  return sides;
}

}  // namespace

GroupBoxes TileBoxes(const Shape& shape, const Cuts& cuts, const Division& parts) {
  GroupBoxes boxes{PartsOf(cuts, parts), {}, 0, 0};
  boxes.dims.reserve(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    boxes.dims.push_back(NestedCuts(shape[d], static_cast<int>(d), cuts, parts));
  }
  boxes.volume = Sum(boxes, boxes);
  boxes.terms = StepsOf(cuts, [](int cut) { return cut == kTerms; });
  return boxes;
}

int64_t GroupBoxes::groups() const {
  return static_cast<int64_t>(NumDigits(~StepSet{0}, parts));
}

GroupBoxes Pieces(const GroupBoxes& tiles, const TileSplits& splits) {
  GroupBoxes pieces = tiles;
  for (const TileSplit& split : splits) {
    const int parts = tiles.parts[split.step];
    const Intervals& whole = pieces.dims[split.dim];
    Intervals divided{whole.steps | Bit(split.step), {}, {}};
    const Indices undivided = Project(divided.steps, whole.steps, 0, tiles.parts);
    const Indices digits = Project(divided.steps, Bit(split.step), 0, tiles.parts);
    for (size_t g = 0; g < digits->size(); ++g) {
      const int i = (*undivided)[g];
      const Range piece = Piece({whole.begin[i], whole.end[i]}, parts, (*digits)[g]);
      divided.begin.push_back(piece.begin);
      divided.end.push_back(piece.end);
    }
    pieces.dims[split.dim] = std::move(divided);
    pieces.volume /= parts;
  }
  return pieces;
}

int64_t SumOverlap(const GroupBoxes& a, const GroupBoxes& b) { return Sum(a, b); }

int64_t SumOverlap(const GroupBoxes& a, const GroupBoxes& b, const Shape& most) {
  return Sum(a, b, &most);
}

// The later digits of holders count as steps of their own, after those of the readers.
int64_t SumOverlapWithin(const GroupBoxes& reader, const GroupBoxes& holder, size_t steps,
                         const Shape* most) {
  const size_t own = reader.parts.size();
  const StepSet shared = Bit(steps) - 1;
  GroupBoxes readers = reader;
  for (int part : reader.parts) readers.parts.push_back(part);
  GroupBoxes holders = holder;
  holders.parts = readers.parts;
  StepSet later = 0;
  for (Intervals& dim : holders.dims) {
    later |= dim.steps & ~shared;
    dim.steps = (dim.steps & shared) | (dim.steps & ~shared) << own;
  }
  int64_t alike = 1;  // holders of the same box, which the sum counts one by one
  for (size_t step = 0; step < own; ++step) {
    if (!HasStep(later, step)) alike *= reader.parts[step];
  }
  return Sum(readers, holders, most) / alike;
}

Shape LongestSides(const GroupBoxes& boxes) {
  return Sides(boxes, [](int64_t a, int64_t b) { return std::max(a, b); });
}

Shape ShortestSides(const GroupBoxes& boxes) {
  return Sides(boxes, [](int64_t a, int64_t b) { return std::min(a, b); });
}

TileOverlap::TileOverlap(const GroupBoxes& boxes) : boxes_(boxes) {
  StepSet used = boxes.first_only;
  std::vector<StepSet> steps;  // of each component
  for (size_t d = 0; d < boxes.dims.size(); ++d) {
    Component joined{{d}, {}};
    StepSet joined_steps = boxes.dims[d].steps & ~boxes.first_only;
    used |= joined_steps;
    for (size_t c = components_.size(); c-- > 0;) {
      if ((steps[c] & joined_steps) == 0) continue;
      const std::vector<size_t>& dims = components_[c].dims;
      joined.dims.insert(joined.dims.end(), dims.begin(), dims.end());
      joined_steps |= steps[c];
      components_.erase(components_.begin() + static_cast<std::ptrdiff_t>(c));
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(c));
    }
    components_.push_back(std::move(joined));
    steps.push_back(joined_steps);
  }
  free_groups_ = static_cast<int64_t>(NumDigits(~used, boxes.parts));
}

int64_t TileOverlap::Most(const TileGrid& tiles) {
  int64_t product = free_groups_;
  for (Component& component : components_) {
    const auto is_known = [&](const auto& known) {
      for (size_t i = 0; i < component.dims.size(); ++i) {
        if (!(known.first[i] == tiles.side(component.dims[i]))) return false;
      }
      return true;
    };
    auto known = std::find_if(component.known.begin(), component.known.end(), is_known);
    if (known == component.known.end()) {
      std::vector<GridSide> sides;
      for (size_t d : component.dims) sides.push_back(tiles.side(d));
      component.known.emplace_back(std::move(sides), Sum(component, tiles));
      known = component.known.end() - 1;
    }
    product *= known->second;
  }
  return product;
}

int64_t TileOverlap::Sum(const Component& component, const TileGrid& tiles) const {
  thread_local std::vector<Lengths> lengths;  // as in Sum() of boxes
  thread_local std::vector<int64_t> shared;
  size_t count = component.dims.size();
  if (lengths.size() < count) lengths.resize(count);
  for (size_t k = 0; k < count; ++k) {
    const size_t d = component.dims[k];
    const Intervals& dim = boxes_.dims[d];
    Lengths& most = lengths[k];
    most.steps = dim.steps & ~boxes_.first_only;
    if (most.steps == dim.steps) {
      tiles.side(d).MostShared(dim.begin, dim.end, &most.values);
      continue;
    }
    tiles.side(d).MostShared(dim.begin, dim.end, &shared);
    most.values.clear();
    for (int i : *Project(dim.steps, dim.steps, boxes_.first_only, boxes_.parts)) {
      most.values.push_back(shared[static_cast<size_t>(i)]);
    }
  }
  return SumComponent(&lengths, 0, &count, boxes_.parts);
}

OperatorRegions::OperatorRegions(const Graph& graph, const StrategyTable& table, int node,
                                 const Cuts& cuts, const Division& parts, size_t steps) {
  const StrategyRow* row = table.row(node);
  ranges_.parts = PartsOf(cuts, parts);
  Cuts first = cuts;
  for (size_t i = steps; i < first.size(); ++i) first[i] = kReplicated;
  if (row != nullptr) ranges_.dims.reserve(row->vars.size());
  for (size_t v = 0; row != nullptr && v < row->vars.size(); ++v) {
    const int var = static_cast<int>(v);
    ranges_.dims.push_back(
        NestedCuts(VarExtent(*row, var, graph, node), var, first, parts));
  }
  if (row != nullptr && row->random) {
    ranges_.first_only = StepsOf(cuts, [](int cut) { return cut == kReplicated; });
    if (steps < cuts.size()) ranges_.first_only &= Bit(steps) - 1;
  }
  const Node& n = graph.nodes[node];
  inputs_.reserve(n.inputs.size());
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    inputs_.push_back(MakeInput(graph, row, node, static_cast<int>(i), cuts));
  }
  outputs_.reserve(n.num_outputs);
  for (int i = 0; i < n.num_outputs; ++i) {
    outputs_.push_back(MakeOutput(graph, row, node, i, cuts, parts));
  }
}

OperatorRegions::Slot OperatorRegions::MakeInput(const Graph& graph,
                                                 const StrategyRow* row, int node,
                                                 int slot, const Cuts& cuts) const {
  const bool known = row != nullptr && slot < static_cast<int>(row->inputs.size());
  static const InputAccess kWhole;
  const InputAccess& access = known ? row->inputs[slot] : kWhole;
  const auto split = [&](int var) { return HasVar(cuts, var); };
  const bool padded =
      access.pad && std::any_of(access.pad->vars.begin(), access.pad->vars.end(), split);
  Slot result;
  result.boxes = AccessBoxes(access.dims, graph.shape(graph.nodes[node].inputs[slot]),
                             ranges_, padded);
  const int terms = row == nullptr ? -1 : row->terms;
  result.boxes.first_only |= StepsOf(
      cuts, [&](int cut) { return cut != terms && HasVar(access.only_first, cut); });
  if (known && terms >= 0) {
    result.terms = StepsOf(cuts, [&](int cut) { return cut == terms; });
  }
  result.boxes.volume = Sum(result.boxes, result.boxes);
  return result;
}

OperatorRegions::Slot OperatorRegions::MakeOutput(const Graph& graph,
                                                  const StrategyRow* row, int node,
                                                  int index, const Cuts& cuts,
                                                  const Division& parts) const {
  const bool known = row != nullptr && index < static_cast<int>(row->outputs.size());
  static const OutputAccess kWhole;
  const OutputAccess& access = known ? row->outputs[index] : kWhole;
  Slot result;
  result.boxes = AccessBoxes(access.dims, graph.shape({node, index}), ranges_);
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (access.reduce.count(cuts[i]) == 0) continue;
    result.copies *= parts[i];
    result.reduces |= Bit(i);
    result.is_weighted |= access.weights.has_value();
  }
  return result;
}

int64_t OperatorRegions::InputElements(int slot, const GroupBoxes& tiles) const {
  const Slot& input = inputs_[slot];
  if ((input.terms | tiles.terms) == 0) {
    return input.boxes.volume - SumOverlap(input.boxes, tiles);
  }
  const GroupBoxes read = Read(slot, tiles);
  const auto terms = static_cast<int64_t>(NumDigits(AddsToRead(slot, tiles), read.parts));
  return terms * read.volume - SumOverlap(read, tiles);
}

GroupBoxes OperatorRegions::Read(int slot, const GroupBoxes& tiles) const {
  GroupBoxes read = inputs_[slot].boxes;
  read.first_only |= inputs_[slot].terms & ~tiles.terms;
  read.volume = Sum(read, read);
  return read;
}

GroupBoxes OperatorRegions::Made(int index, const GroupBoxes& tiles) const {
  GroupBoxes made = tiles;
  made.first_only |= tiles.terms & ~outputs_[index].reduces;
  made.volume = Sum(made, made);
  return made;
}

int64_t OperatorRegions::OutputElements(int index, const GroupBoxes& tiles) const {
  return CheapestWay(index, tiles).elements;
}

OutputWay OperatorRegions::CheapestWay(int index, const GroupBoxes& tiles) const {
  return tiles.terms == 0 ? CheapestWayTo(index, tiles)
                          : CheapestWayTo(index, Made(index, tiles));
}

OutputWay OperatorRegions::CheapestWayTo(int index, const GroupBoxes& tiles) const {
  const Slot& output = outputs_[index];
  const StepSet reduces = ReducesToMake(index, tiles);
  const auto copies = static_cast<int64_t>(NumDigits(reduces, tiles.parts));
  OutputWay way{copies * tiles.volume - SumOverlap(output.boxes, tiles), {}};
  if (copies == 1) return way;
  StepSet cut = tiles.terms;
  for (const Intervals& dim : tiles.dims) cut |= dim.steps;
  for (TileSplits& splits : Tilings(index, ShortestSides(tiles), ~cut)) {
    const GroupBoxes pieces = Pieces(tiles, splits);
    const int64_t elements = ElementsInPieces(
        copies, pieces.volume, SumOverlap(output.boxes, pieces), tiles.volume);
    if (elements < way.elements) way = {elements, std::move(splits)};
  }
  return way;
}

// Steps in T split along the terms, and tiles are terms at steps in P. The region is
// needed in the first workers of the steps in T alone, with the terms of those in P
// alone. Whichever steps T and P share, that is the whole region's elements by P's parts,
// divided by T's.
int64_t OperatorRegions::LeastInputElements(int slot, int64_t terms,
                                            int64_t shared) const {
  const Slot& input = inputs_[slot];
  const int64_t volume = input.boxes.volume;
  if (input.terms == 0 && terms == 1) return volume - shared;
  const auto split = static_cast<int64_t>(NumDigits(input.terms, input.boxes.parts));
  const int64_t fetched = volume / split * terms;
  return fetched - std::min({shared, volume, fetched});
}

// Likewise with the steps whose parts are reduced in T's place. First workers have at
// least the tiles' elements divided by the parts of P.
int64_t OperatorRegions::LeastOutputElements(int index, const TileGrid& grid,
                                             const Tiles& tiles, int64_t shared,
                                             TileOverlap* overlap) const {
  const Slot& output = outputs_[index];
  const int64_t volume = tiles.volume / tiles.terms;
  const int64_t fetched = output.copies * volume;
  int64_t least = fetched - std::min({shared, tiles.volume, fetched});
  // First workers may have more elements, of which pieces are rounded down but once.
  const int64_t rounding = tiles.terms > 1 ? 1 : 0;
  for (const TileSplits& splits : Tilings(index, grid.ShortestSides(), tiles.whole)) {
    int64_t divided = 1;
    for (const TileSplit& split : splits) divided *= output.boxes.parts[split.step];
    const int64_t pieces = volume / divided;
    const int64_t most = overlap->Most(PieceGrid(index, grid, splits));
    const int64_t elements =
        ElementsInPieces(output.copies, pieces, std::min(most, pieces), volume);
    least = std::min(least, elements - rounding);
  }
  return least;
}

TileGrid OperatorRegions::PieceGrid(int index, TileGrid tiles,
                                    const TileSplits& splits) const {
  const StepParts& parts = outputs_[index].boxes.parts;
  for (const TileSplit& split : splits) {
    const bool is_unlike =
        std::any_of(splits.begin(), splits.end(), [&](const TileSplit& other) {
          return other.dim == split.dim && parts[other.step] != parts[split.step];
        });
    if (is_unlike) tiles.side(split.dim).ForgetBounds();
    tiles.side(split.dim).Cut(parts[split.step]);
  }
  return tiles;
}

int64_t OperatorRegions::LeastSumElements(int index, int64_t volume,
                                          StepSet whole) const {
  const Slot& output = outputs_[index];
  int64_t owners = 1;  // of each element
  for (size_t i = 0; i < output.boxes.parts.size(); ++i) {
    if (HasStep(whole, i)) owners *= output.boxes.parts[i];
  }
  return volume / owners * (output.copies + owners - 2);
}

std::vector<TileSplits> OperatorRegions::Tilings(int index, const Shape& tile,
                                                 StepSet whole) const {
  const Slot& output = outputs_[index];
  std::vector<SharedStep> steps;
  const StepParts& parts = output.boxes.parts;
  for (size_t i = 0; i < parts.size() && output.copies > 1; ++i) {
    if (!HasStep(whole, i)) continue;
    steps.push_back({static_cast<int>(i), parts[i], (output.reduces & Bit(i)) != 0});
  }
  if (steps.empty()) return {};
  return ReductionTilings(tile, steps);
}

}  // namespace tofu
