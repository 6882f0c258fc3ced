#include "passes/divide/fetch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace tofu {
namespace {

// A part of the region and the number of its source, or kFill.
struct Cell {
  Box box;
  int source = kFill;
};

// Whether two slabs that are adjacent along `dim` are cut alike along the later
// dimensions and come from the same sources: then they are one slab. The slabs are the
// cells from `first` to before `second`, and the cells from `second` on.
bool SameBeyond(const std::vector<Cell>& cells, size_t first, size_t second, int dim) {
  if (second - first != cells.size() - second) return false;
  for (size_t i = 0; i < second - first; ++i) {
    const Cell& a = cells[first + i];
    const Cell& b = cells[second + i];
    if (a.source != b.source) return false;
    for (int d = dim + 1; d < a.box.rank(); ++d) {
      if (a.box.begin[d] != b.box.begin[d]) return false;
      if (a.box.end[d] != b.box.end[d]) return false;
    }
  }
  return true;
}

// Cuts a region into cells, dimension by dimension: slabs along the first
// dimension, each cut along the next one where its own sources end.
class CellCutter {
 public:
  CellCutter(const Box& tensor, const std::vector<FetchSource>& sources)
      : tensor_(tensor), sources_(sources) {}

  std::vector<Cell> Cut(const Box& region) const {
    std::vector<Cell> cells;
    if (!sources_.empty() && region.Volume() > 0 && Contains(sources_[0].box, region)) {
      cells.push_back({region, 0});  // all cells would be this source's
      return cells;
    }
    Numbers candidates(sources_.size());
    std::iota(candidates.begin(), candidates.end(), 0);
    Box uncut = region;
    CutFrom(0, candidates, &uncut, &cells);
    return cells;
  }

 private:
  using Numbers = ShortVector<int, 16>;
  using Lines = ShortVector<int64_t, 16>;

  // Appends the cells of `region`; `candidates` are the sources that may reach into it.
  void CutFrom(int dim, const Numbers& candidates, Box* region,
               std::vector<Cell>* cells) const {
    Numbers near;
    for (int c : candidates) {
      if (Overlap(sources_[c].box, *region)) near.push_back(c);
    }
    if (dim == region->rank()) {
      cells->push_back(Leaf(*region, near));
      return;
    }
    const int64_t begin = region->begin[dim];
    const int64_t end = region->end[dim];
    const auto lines = Boundaries(near, dim, begin, end);
    const std::vector<Numbers> by_slab = BySlab(near, dim, lines);
    size_t open = cells->size();  // the last slab's first cell; the slab may still grow
    for (size_t i = 0; i + 1 < lines.size(); ++i) {
      region->begin[dim] = lines[i];
      region->end[dim] = lines[i + 1];
      const size_t next = cells->size();
      CutFrom(dim + 1, by_slab[i], region, cells);
      if (i > 0 && SameBeyond(*cells, open, next, dim)) {
        cells->erase(cells->begin() + static_cast<std::ptrdiff_t>(next), cells->end());
        for (size_t c = open; c < next; ++c) (*cells)[c].box.end[dim] = lines[i + 1];
      } else {
        open = next;
      }
    }
    region->begin[dim] = begin;
    region->end[dim] = end;
  }

  // The sources that reach into each slab between two lines, in their order.
  std::vector<Numbers> BySlab(const Numbers& sources, int dim, const Lines& lines) const {
    std::vector<Numbers> by_slab(lines.size() - 1);
    for (int source : sources) {
      const Box& box = sources_[source].box;
      const auto after = std::upper_bound(lines.begin(), lines.end(), box.begin[dim]);
      auto slab =
          static_cast<size_t>(std::max<std::ptrdiff_t>(after - lines.begin() - 1, 0));
      for (; slab < by_slab.size() && lines[slab] < box.end[dim]; ++slab) {
        by_slab[slab].push_back(source);
      }
    }
    return by_slab;
  }

  // The sorted, unique boundaries of the tensor and of sources that lie strictly inside
  // [begin, end) along `dim`, and both ends.
  Lines Boundaries(const Numbers& sources, int dim, int64_t begin, int64_t end) const {
    Lines lines = {begin, end};
    const auto add = [&](const Box& box) {
      for (int64_t line : {box.begin[dim], box.end[dim]}) {
        if (begin < line && line < end) lines.push_back(line);
      }
    };
    add(tensor_);
    for (int source : sources) add(sources_[source].box);
    std::sort(lines.begin(), lines.end());
    lines.resize(std::unique(lines.begin(), lines.end()) - lines.begin());
    return lines;
  }

  Cell Leaf(const Box& box, const Numbers& candidates) const {
    for (int c : candidates) {
      if (Contains(sources_[c].box, box)) return {box, c};
    }
    if (Overlap(box, tensor_)) throw FetchGap(box);
    return {box, kFill};
  }

  const Box& tensor_;
  const std::vector<FetchSource>& sources_;
};

void AppendTerm(const Box& tensor, const std::vector<FetchSource>& sources, int term,
                FetchSpec* spec) {
  for (const FetchSource& source : sources) {
    TOFU_CHECK(source.box.rank() == spec->region.rank())
        << "a source of rank " << source.box.rank() << " for a region of rank "
        << spec->region.rank();
  }
  for (const Cell& cell : CellCutter(tensor, sources).Cut(spec->region)) {
    FetchPiece piece;
    piece.to = Relative(cell.box, spec->region.begin);
    piece.term = term;
    if (cell.source != kFill) {
      const FetchSource& source = sources[cell.source];
      piece.source = source.worker;
      piece.from = Relative(cell.box, source.box.begin);
    }
    spec->pieces.push_back(std::move(piece));
  }
}

}  // namespace

FetchSpec PlanFetch(int worker, const Box& region, const Box& tensor,
                    const std::vector<FetchSource>& sources) {
  return PlanReduction(worker, region, tensor, {sources}, Reducer::kSum);
}

FetchSpec PlanReduction(int worker, const Box& region, const Box& tensor,
                        const std::vector<std::vector<FetchSource>>& terms,
                        Reducer reduce) {
  FetchSpec spec;
  spec.worker = worker;
  spec.region = region;
  spec.reduce = reduce;
  spec.num_terms = static_cast<int>(terms.size());
  if (region.Volume() == 0) return spec;
  for (int term = 0; term < spec.num_terms; ++term) {
    AppendTerm(tensor, terms[term], term, &spec);
  }
  return spec;
}

int64_t FetchedElements(const FetchSpec& spec) {
  int64_t elements = 0;
  for (const FetchPiece& piece : spec.pieces) {
    if (piece.source != kFill && piece.source != spec.worker) {
      elements += piece.to.Volume();
    }
  }
  return elements;
}

Box Relative(const Box& box, const Shape& origin) {
  Box moved = box;
  for (int d = 0; d < box.rank(); ++d) {
    moved.begin[d] -= origin[d];
    moved.end[d] -= origin[d];
  }
  return moved;
}

std::string BoxText(const Box& box) {
  std::string text = "[";
  for (int d = 0; d < box.rank(); ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(box.begin[d]) + ":" + std::to_string(box.end[d]);
  }
  return text + ")";
}

}  // namespace tofu
