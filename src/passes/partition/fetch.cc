#include "passes/partition/fetch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace tofu {
namespace {

// Sorted, unique boundaries of `boxes` strictly inside [begin, end) along
// `dim`, with both ends.
std::vector<int64_t> Boundaries(const std::vector<const Box*>& boxes, int dim,
                                int64_t begin, int64_t end) {
  std::vector<int64_t> lines = {begin, end};
  for (const Box* box : boxes) {
    for (int64_t line : {box->begin[dim], box->end[dim]}) {
      if (begin < line && line < end) lines.push_back(line);
    }
  }
  std::sort(lines.begin(), lines.end());
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  return lines;
}

// A part of the region and the number of its source, or kFill.
struct Cell {
  Box box;
  int source = kFill;
};

// Whether two slabs that are adjacent along `dim` are cut alike along the later
// dimensions and come from the same sources: then they are one slab.
bool SameBeyond(const std::vector<Cell>& a, const std::vector<Cell>& b, int dim) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].source != b[i].source) return false;
    for (int d = dim + 1; d < a[i].box.rank(); ++d) {
      if (a[i].box.begin[d] != b[i].box.begin[d]) return false;
      if (a[i].box.end[d] != b[i].box.end[d]) return false;
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
    std::vector<int> candidates(sources_.size());
    std::iota(candidates.begin(), candidates.end(), 0);
    return CutFrom(0, region, candidates);
  }

 private:
  std::vector<Cell> CutFrom(int dim, const Box& region,
                            const std::vector<int>& candidates) const {
    std::vector<int> near;
    std::vector<const Box*> boxes = {&tensor_};
    for (int c : candidates) {
      if (Intersect(sources_[c].box, region).Volume() == 0) continue;
      near.push_back(c);
      boxes.push_back(&sources_[c].box);
    }
    if (dim == region.rank()) return {Leaf(region, near)};
    const auto lines = Boundaries(boxes, dim, region.begin[dim], region.end[dim]);
    std::vector<Cell> cells;
    std::vector<Cell> open;  // the last slab, which may still grow
    for (size_t i = 0; i + 1 < lines.size(); ++i) {
      Box slab = region;
      slab.begin[dim] = lines[i];
      slab.end[dim] = lines[i + 1];
      std::vector<Cell> next = CutFrom(dim + 1, slab, near);
      if (!open.empty() && SameBeyond(open, next, dim)) {
        for (Cell& cell : open) cell.box.end[dim] = lines[i + 1];
        continue;
      }
      cells.insert(cells.end(), open.begin(), open.end());
      open = std::move(next);
    }
    cells.insert(cells.end(), open.begin(), open.end());
    return cells;
  }

  Cell Leaf(const Box& box, const std::vector<int>& candidates) const {
    for (int c : candidates) {
      if (Contains(sources_[c].box, box)) return {box, c};
    }
    if (Intersect(box, tensor_).Volume() > 0) throw FetchGap(box);
    return {box, kFill};
  }

  const Box& tensor_;
  const std::vector<FetchSource>& sources_;
};

Box Relative(const Box& box, const std::vector<int64_t>& origin) {
  Box moved = box;
  for (int d = 0; d < box.rank(); ++d) {
    moved.begin[d] -= origin[d];
    moved.end[d] -= origin[d];
  }
  return moved;
}

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

std::vector<std::vector<int>> FetchPreference(const std::vector<int>& parts) {
  int workers = 1;
  for (int p : parts) workers *= p;
  std::vector<std::vector<int>> digits;
  for (int w = 0; w < workers; ++w) digits.push_back(WorkerDigits(w, parts));
  std::vector<std::vector<int>> order(workers);
  for (int w = 0; w < workers; ++w) {
    order[w].resize(workers);
    std::iota(order[w].begin(), order[w].end(), 0);
    const auto shared = [&](int other) {
      size_t n = 0;
      while (n < parts.size() && digits[w][n] == digits[other][n]) ++n;
      return n;
    };
    std::stable_sort(order[w].begin(), order[w].end(),
                     [&](int a, int b) { return shared(a) > shared(b); });
  }
  return order;
}

FetchSpec PlanFetch(int worker, const Box& region, const Box& tensor,
                    const std::vector<FetchSource>& sources) {
  FetchSpec spec;
  spec.worker = worker;
  spec.region = region;
  if (region.Volume() > 0) AppendTerm(tensor, sources, 0, &spec);
  return spec;
}

FetchSpec PlanReduction(int worker, const Box& region,
                        const std::vector<std::vector<FetchSource>>& terms,
                        Reducer reduce) {
  FetchSpec spec;
  spec.worker = worker;
  spec.region = region;
  spec.reduce = reduce;
  spec.num_terms = static_cast<int>(terms.size());
  if (region.Volume() == 0) return spec;
  for (int term = 0; term < spec.num_terms; ++term) {
    AppendTerm(region, terms[term], term, &spec);
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

std::string BoxText(const Box& box) {
  std::string text = "[";
  for (int d = 0; d < box.rank(); ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(box.begin[d]) + ":" + std::to_string(box.end[d]);
  }
  return text + ")";
}

}  // namespace tofu
