#include "graph/box.h"

#include <algorithm>

#include "base/error.h"

namespace tofu {
namespace {

int64_t FloorDivide(int64_t numerator, int64_t divisor) {
  const int64_t quotient = numerator / divisor;
  return numerator % divisor < 0 ? quotient - 1 : quotient;
}

int64_t Evaluate(const AffineForm& form, const std::vector<Range>& ranges) {
  int64_t sum = form.constant;
  for (const AffineForm::Term& term : form.terms) {
    const Range& range = ranges[static_cast<size_t>(term.var)];
    sum += term.coef * (term.upper ? range.end - 1 : range.begin);
  }
  return FloorDivide(sum, form.divisor);
}

}  // namespace

bool CanCut(int64_t extent, int parts) { return extent >= parts; }

bool CutsEvenly(int64_t extent, int64_t parts) {
  if (extent < parts) return false;
  const int64_t largest = (extent + parts - 1) / parts;
  return 4 * largest * parts <= 5 * extent;
}

int64_t Box::Volume() const {
  int64_t volume = 1;
  for (size_t d = 0; d < begin.size(); ++d) {
    if (end[d] <= begin[d]) return 0;
    volume *= end[d] - begin[d];
  }
  return volume;
}

Shape Box::Extents() const {
  Shape extents(begin.size());
  for (size_t d = 0; d < begin.size(); ++d) extents[d] = end[d] - begin[d];
  return extents;
}

Box WholeBox(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

Box Intersect(const Box& a, const Box& b) {
  TOFU_CHECK(a.rank() == b.rank()) << "ranks " << a.rank() << " and " << b.rank();
  Box box = a;
  for (size_t d = 0; d < box.begin.size(); ++d) {
    box.begin[d] = std::max(a.begin[d], b.begin[d]);
    box.end[d] = std::min(a.end[d], b.end[d]);
  }
  return box;
}

bool Overlap(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.begin.size(); ++d) {
    if (std::max(a.begin[d], b.begin[d]) >= std::min(a.end[d], b.end[d])) return false;
  }
  return true;
}

bool Contains(const Box& outer, const Box& inner) {
  if (inner.Volume() == 0) return true;
  for (size_t d = 0; d < inner.begin.size(); ++d) {
    if (inner.begin[d] < outer.begin[d] || inner.end[d] > outer.end[d]) return false;
  }
  return true;
}

std::vector<int> WorkerDigits(int worker, const std::vector<int>& parts) {
  std::vector<int> digits(parts.size());
  for (size_t i = parts.size(); i-- > 0;) {
    digits[i] = worker % parts[i];
    worker /= parts[i];
  }
  return digits;
}

Box TileBox(const Shape& shape, const std::vector<int>& cuts, const Division& parts,
            const std::vector<int>& digits) {
  Box box = WholeBox(shape);
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (!IsCut(cuts[i])) continue;
    const size_t d = static_cast<size_t>(cuts[i]);
    TOFU_CHECK(d < shape.size()) << "cut of dimension " << d << " of " << shape.size();
    const Range piece = parts.Piece({box.begin[d], box.end[d]}, i, digits[i]);
    box.begin[d] = piece.begin;
    box.end[d] = piece.end;
  }
  return box;
}

int64_t VarExtent(const StrategyRow& row, int var, const Graph& graph, int node) {
  const IndexVar& v = row.vars[static_cast<size_t>(var)];
  if (v.kind == IndexVar::Extent::kConstant) return v.constant;
  if (v.kind == IndexVar::Extent::kTerms) return kTermsExtent;
  const Node& n = graph.nodes[static_cast<size_t>(node)];
  const NodeEntry entry = v.kind == IndexVar::Extent::kInput
                              ? n.inputs[static_cast<size_t>(v.slot)]
                              : NodeEntry{node, v.slot};
  return graph.shape(entry)[static_cast<size_t>(v.dim)];
}

std::vector<Range> VarRanges(const StrategyRow& row, const Graph& graph, int node,
                             const std::vector<int>& cuts, const Division& parts,
                             const std::vector<int>& digits) {
  std::vector<Range> ranges(row.vars.size());
  for (size_t v = 0; v < ranges.size(); ++v) {
    ranges[v].end = VarExtent(row, static_cast<int>(v), graph, node);
  }
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (!IsCut(cuts[i])) continue;
    const size_t v = static_cast<size_t>(cuts[i]);
    TOFU_CHECK(v < ranges.size()) << "split of variable " << v << " of " << ranges.size();
    ranges[v] = parts.Piece(ranges[v], i, digits[i]);
  }
  return ranges;
}

Box AccessBox(const std::vector<DimAccess>& dims, const Shape& shape,
              const std::vector<Range>& ranges) {
  Box box = WholeBox(shape);
  for (size_t d = 0; d < dims.size() && d < shape.size(); ++d) {
    if (dims[d].whole) continue;
    box.begin[d] = Evaluate(dims[d].lo, ranges);
    box.end[d] = Evaluate(dims[d].hi, ranges) + 1;
  }
  return box;
}

}  // namespace tofu
