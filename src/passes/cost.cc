#include "passes/cost.h"

#include <algorithm>
#include <utility>

#include "graph/box.h"
#include "graph/error.h"

namespace tofu {
namespace {

int NumGroups(size_t steps, const std::vector<int>& parts) {
  int groups = 1;
  for (size_t i = 0; i < steps; ++i) groups *= parts[i];
  return groups;
}

// [0, extent) as the steps with cuts[i] == id divide it, for every group.
Intervals NestedCuts(int64_t extent, int id, const Cuts& cuts,
                     const std::vector<int>& parts) {
  Intervals intervals{{0}, {extent}};
  if (std::find(cuts.begin(), cuts.end(), id) == cuts.end()) return intervals;
  for (size_t i = 0; i < cuts.size(); ++i) {
    Intervals next;
    for (size_t g = 0; g < intervals.begin.size(); ++g) {
      const int64_t begin = intervals.begin[g];
      const int64_t size = intervals.end[g] - begin;
      for (int digit = 0; digit < parts[i]; ++digit) {
        const int64_t piece = cuts[i] == id ? size / parts[i] : size;
        next.begin.push_back(cuts[i] == id ? begin + digit * piece : begin);
        next.end.push_back(next.begin.back() + piece);
      }
    }
    intervals = std::move(next);
  }
  return intervals;
}

// Marks the groups with a digit other than 0 at a step that `applies` to.
template <typename Predicate>
void MarkNonzeroDigits(const Cuts& cuts, const std::vector<int>& parts, Predicate applies,
                       std::vector<char>* idle) {
  const int groups = NumGroups(cuts.size(), parts);
  int stride = groups;
  for (size_t i = 0; i < cuts.size(); ++i) {
    stride /= parts[i];
    if (!applies(cuts[i])) continue;
    if (idle->empty()) idle->assign(static_cast<size_t>(groups), 0);
    for (int g = 0; g < groups; ++g) {
      if (g / stride % parts[i] != 0) (*idle)[g] = 1;
    }
  }
}

bool HasVar(const std::vector<int>& vars, int var) {
  return std::find(vars.begin(), vars.end(), var) != vars.end();
}

int64_t FloorDivide(int64_t numerator, int64_t divisor) {
  const int64_t quotient = numerator / divisor;
  return numerator % divisor < 0 ? quotient - 1 : quotient;
}

int64_t Evaluate(const AffineForm& form, const std::vector<Intervals>& ranges, size_t g) {
  int64_t sum = form.constant;
  for (const AffineForm::Term& term : form.terms) {
    const Intervals& range = ranges[term.var];
    const size_t i = range.uniform() ? 0 : g;
    sum += term.coef * (term.upper ? range.end[i] - 1 : range.begin[i]);
  }
  return FloorDivide(sum, form.divisor);
}

// What `access` touches of [0, extent), clipped, for every group. Where no
// variable in it is split the dimension is taken whole, as the unsplit operator
// does, unless `exact`.
Intervals AccessIntervals(const DimAccess& access, int64_t extent,
                          const GroupBoxes& ranges, bool exact) {
  if (access.whole) return {{0}, {extent}};
  bool uniform = true;
  for (const AffineForm* form : {&access.lo, &access.hi}) {
    for (const AffineForm::Term& term : form->terms) {
      uniform = uniform && ranges.dims[term.var].uniform();
    }
  }
  if (uniform && !exact) return {{0}, {extent}};
  Intervals intervals;
  const size_t count = uniform ? 1 : static_cast<size_t>(ranges.groups);
  for (size_t g = 0; g < count; ++g) {
    const int64_t begin = Evaluate(access.lo, ranges.dims, g);
    const int64_t end = Evaluate(access.hi, ranges.dims, g) + 1;
    intervals.begin.push_back(std::clamp<int64_t>(begin, 0, extent));
    intervals.end.push_back(std::clamp<int64_t>(end, 0, extent));
  }
  return intervals;
}

GroupBoxes AccessBoxes(const std::vector<DimAccess>& dims, const Shape& shape,
                       const GroupBoxes& ranges, bool exact = false) {
  GroupBoxes boxes;
  boxes.groups = ranges.groups;
  boxes.idle = ranges.idle;
  static const DimAccess kWhole;
  for (size_t d = 0; d < shape.size(); ++d) {
    boxes.dims.push_back(
        AccessIntervals(d < dims.size() ? dims[d] : kWhole, shape[d], ranges, exact));
  }
  return boxes;
}

// Multiplies every group's volume by its length along one dimension, where a
// and b (when given) overlap.
void MultiplyLengths(const Intervals& a, const Intervals* b, int64_t* uniform,
                     std::vector<int64_t>* volumes, size_t groups) {
  const auto length = [&](size_t g) {
    const size_t i = a.uniform() ? 0 : g;
    const size_t j = b == nullptr || b->uniform() ? 0 : g;
    const int64_t begin = b == nullptr ? a.begin[i] : std::max(a.begin[i], b->begin[j]);
    const int64_t end = b == nullptr ? a.end[i] : std::min(a.end[i], b->end[j]);
    return std::max<int64_t>(end - begin, 0);
  };
  if (a.uniform() && (b == nullptr || b->uniform())) {
    *uniform *= length(0);
    return;
  }
  if (volumes->empty()) volumes->assign(groups, 1);
  for (size_t g = 0; g < groups; ++g) (*volumes)[g] *= length(g);
}

int64_t Sum(const GroupBoxes& a, const GroupBoxes* b) {
  TOFU_CHECK(b == nullptr || (a.groups == b->groups && a.dims.size() == b->dims.size()))
      << "boxes of " << a.groups << " groups, rank " << a.dims.size()
      << " do not compare with others";
  const size_t groups = static_cast<size_t>(a.groups);
  int64_t uniform = 1;
  std::vector<int64_t> volumes;
  for (size_t d = 0; d < a.dims.size(); ++d) {
    MultiplyLengths(a.dims[d], b == nullptr ? nullptr : &b->dims[d], &uniform, &volumes,
                    groups);
  }
  const bool idle = !a.idle.empty() || (b != nullptr && !b->idle.empty());
  if (volumes.empty() && !idle) return uniform * a.groups;
  int64_t sum = 0;
  for (size_t g = 0; g < groups; ++g) {
    const bool empty = (!a.idle.empty() && a.idle[g] != 0) ||
                       (b != nullptr && !b->idle.empty() && b->idle[g] != 0);
    if (!empty) sum += volumes.empty() ? 1 : volumes[g];
  }
  return uniform * sum;
}

}  // namespace

GroupBoxes TileBoxes(const Shape& shape, const Cuts& cuts,
                     const std::vector<int>& parts) {
  GroupBoxes boxes;
  boxes.groups = NumGroups(cuts.size(), parts);
  for (size_t d = 0; d < shape.size(); ++d) {
    boxes.dims.push_back(NestedCuts(shape[d], static_cast<int>(d), cuts, parts));
  }
  return boxes;
}

int64_t SumVolume(const GroupBoxes& boxes) { return Sum(boxes, nullptr); }

int64_t SumOverlap(const GroupBoxes& a, const GroupBoxes& b) { return Sum(a, &b); }

OperatorRegions::OperatorRegions(const Graph& graph, const StrategyTable& table, int node,
                                 const Cuts& cuts, const std::vector<int>& parts) {
  const StrategyRow* row = table.row(node);
  ranges_.groups = NumGroups(cuts.size(), parts);
  for (size_t v = 0; row != nullptr && v < row->vars.size(); ++v) {
    const int var = static_cast<int>(v);
    ranges_.dims.push_back(
        NestedCuts(VarExtent(*row, var, graph, node), var, cuts, parts));
  }
  if (row != nullptr && row->random) {
    MarkNonzeroDigits(
        cuts, parts, [](int cut) { return cut == kReplicated; }, &ranges_.idle);
  }
  const Node& n = graph.nodes[node];
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    inputs_.push_back(MakeInput(graph, row, node, static_cast<int>(i), cuts, parts));
  }
  for (int i = 0; i < n.num_outputs; ++i) {
    outputs_.push_back(MakeOutput(graph, row, node, i, cuts, parts));
  }
}

OperatorRegions::Slot OperatorRegions::MakeInput(const Graph& graph,
                                                 const StrategyRow* row, int node,
                                                 int slot, const Cuts& cuts,
                                                 const std::vector<int>& parts) const {
  const bool known = row != nullptr && slot < static_cast<int>(row->inputs.size());
  static const InputAccess kWhole;
  const InputAccess& access = known ? row->inputs[slot] : kWhole;
  const auto split = [&](int var) { return HasVar(cuts, var); };
  const bool padded =
      access.pad && std::any_of(access.pad->vars.begin(), access.pad->vars.end(), split);
  Slot result;
  result.boxes = AccessBoxes(access.dims, graph.shape(graph.nodes[node].inputs[slot]),
                             ranges_, padded);
  MarkNonzeroDigits(
      cuts, parts, [&](int cut) { return HasVar(access.only_first, cut); },
      &result.boxes.idle);
  result.volume = SumVolume(result.boxes);
  return result;
}

OperatorRegions::Slot OperatorRegions::MakeOutput(const Graph& graph,
                                                  const StrategyRow* row, int node,
                                                  int index, const Cuts& cuts,
                                                  const std::vector<int>& parts) const {
  const bool known = row != nullptr && index < static_cast<int>(row->outputs.size());
  static const OutputAccess kWhole;
  const OutputAccess& access = known ? row->outputs[index] : kWhole;
  Slot result;
  result.boxes = AccessBoxes(access.dims, graph.shape({node, index}), ranges_);
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (access.reduce.count(cuts[i]) > 0) result.copies *= parts[i];
  }
  return result;
}

int64_t OperatorRegions::InputElements(int slot, const GroupBoxes& tiles) const {
  const Slot& input = inputs_[slot];
  return input.volume - SumOverlap(input.boxes, tiles);
}

int64_t OperatorRegions::OutputElements(int index, const GroupBoxes& tiles) const {
  const Slot& output = outputs_[index];
  return output.copies * SumVolume(tiles) - SumOverlap(output.boxes, tiles);
}

}  // namespace tofu
