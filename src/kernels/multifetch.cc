#include "kernels/multifetch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/copy_rows.h"

namespace tofu {
namespace {

// Bytes written to a region before the next cell's turn; they stay in the caches.
constexpr int64_t kBandBytes = 8192;

// A box of the region, and for every term so far the piece that covers it.
struct Part {
  Extents begin;
  Extents end;
  std::vector<const TilePiece*> pieces;
};

Part PartOf(const TilePiece& piece) {
  Part part{piece.to, piece.to, {&piece}};
  for (size_t d = 0; d < piece.to.size(); ++d) part.end[d] += piece.extents[d];
  return part;
}

// The common part; false when it is empty.
bool Meet(const Part& part, const TilePiece& piece, Part* common) {
  *common = PartOf(piece);
  for (size_t d = 0; d < part.begin.size(); ++d) {
    common->begin[d] = std::max(part.begin[d], common->begin[d]);
    common->end[d] = std::min(part.end[d], common->end[d]);
    if (common->begin[d] >= common->end[d]) return false;
  }
  common->pieces = part.pieces;
  common->pieces.push_back(&piece);
  return true;
}

bool IsEmpty(const TilePiece& piece) {
  return std::any_of(piece.extents.begin(), piece.extents.end(),
                     [](int64_t extent) { return extent == 0; });
}

// Cuts the region so that every part has one piece of every term.
std::vector<Part> CutByTerms(const MultiFetchSpec& spec) {
  std::vector<Part> parts;
  for (int term = 0; term < spec.num_terms; ++term) {
    std::vector<Part> finer;
    for (const TilePiece& piece : spec.pieces) {
      if (piece.term != term || IsEmpty(piece)) continue;
      if (term == 0) finer.push_back(PartOf(piece));
      Part common;
      for (const Part& part : parts) {
        if (Meet(part, piece, &common)) finer.push_back(std::move(common));
      }
    }
    parts = std::move(finer);
  }
  return parts;
}

// Whether `outer` continues where `inner`, the loop inside it, ends.
bool Continues(const CellLoop& outer, const CellLoop& inner) {
  if (outer.to_stride != inner.count * inner.to_stride) return false;
  for (size_t t = 0; t < outer.from_strides.size(); ++t) {
    if (outer.from_strides[t] != inner.count * inner.from_strides[t]) return false;
  }
  return true;
}

bool IsContiguous(const CellLoop& loop) {
  return loop.to_stride == 1 &&
         std::all_of(loop.from_strides.begin(), loop.from_strides.end(),
                     [](int64_t stride) { return stride == 1; });
}

class CellMaker {
 public:
  explicit CellMaker(const MultiFetchSpec& spec) : to_strides_(DenseStrides(spec.shape)) {
    for (const Extents& source : spec.sources) {
      from_strides_.push_back(DenseStrides(source));
    }
  }

  Cell Make(const Part& part) const {
    Cell cell;
    for (size_t d = 0; d < part.begin.size(); ++d) {
      cell.offset += part.begin[d] * to_strides_[d];
    }
    for (const TilePiece* piece : part.pieces) {
      CellTerm term{piece->source, 0};
      for (size_t d = 0; d < part.begin.size() && term.source != kNoSource; ++d) {
        term.offset += (piece->from[d] + part.begin[d] - piece->to[d]) *
                       from_strides_[piece->source][d];
      }
      cell.terms.push_back(term);
    }
    for (size_t d = 0; d < part.begin.size(); ++d) AddLoop(part, d, &cell);
    if (!cell.loops.empty() && IsContiguous(cell.loops.back())) {
      cell.row = cell.loops.back().count;
      cell.loops.pop_back();
    }
    return cell;
  }

 private:
  // Appends a loop over dimension d, or lengthens the last one.
  void AddLoop(const Part& part, size_t d, Cell* cell) const {
    CellLoop loop;
    loop.count = part.end[d] - part.begin[d];
    if (loop.count == 1) return;
    loop.to_stride = to_strides_[d];
    for (const TilePiece* piece : part.pieces) {
      // A fill value has no position; it follows the region.
      loop.from_strides.push_back(
          piece->source == kNoSource ? to_strides_[d] : from_strides_[piece->source][d]);
    }
    if (!cell->loops.empty() && Continues(cell->loops.back(), loop)) {
      loop.count *= cell->loops.back().count;
      cell->loops.pop_back();
    }
    cell->loops.push_back(std::move(loop));
  }

  const Extents to_strides_;
  std::vector<Extents> from_strides_;
};

}  // namespace

std::vector<Cell> MakeCells(const MultiFetchSpec& spec) {
  const CellMaker maker(spec);
  std::vector<Cell> cells;
  for (const Part& part : CutByTerms(spec)) cells.push_back(maker.Make(part));
  return cells;
}

MultiFetch::MultiFetch(const MultiFetchSpec& spec) : spec_(spec) {
  CheckSpec(spec_);
  element_bytes_ = ElementBytes(spec_.dtype);
  cells_ = MakeCells(spec_);
  for (const Cell& cell : cells_) max_loops_ = std::max(max_loops_, cell.loops.size());
  WriteElement(spec_.dtype, spec_.fill, fill_);
  if (spec_.num_terms == 1) {
    MakeGroups();
    return;
  }
  max_places_ = spec_.num_terms;
  combine_ = FindCombine(spec_.dtype, spec_.reduce);
  int64_t longest = 0;
  for (const Cell& cell : cells_) {
    for (const CellTerm& term : cell.terms) {
      if (term.source == kNoSource) longest = std::max(longest, cell.row);
    }
  }
  fill_row_.resize(longest * element_bytes_);
  FillRow(fill_row_.data(), fill_, element_bytes_, longest);
}

void MultiFetch::MakeGroups() {
  for (size_t begin = 0, end; begin < cells_.size(); begin = end) {
    const Cell& first = cells_[begin];
    int64_t row_bytes = 0;
    for (end = begin + 1; end < cells_.size() && IsBeside(first, cells_[end]); ++end) {
      row_bytes = first.loops.back().to_stride * element_bytes_;
    }
    const int64_t rows = first.loops.empty() ? 1 : first.loops.back().count;
    const int64_t band =
        end == begin + 1 ? rows : std::max<int64_t>(kBandBytes / row_bytes, 1);
    groups_.push_back({begin, end, band, IsFar(begin, end)});
    max_places_ = std::max(max_places_, end - begin);
  }
}

// Whether cells [begin, end), which are adjacent, are large, and their inner loops so
// long that prefetching rarely goes past their end.
bool MultiFetch::IsFar(size_t begin, size_t end) const {
  int64_t bytes = 0;
  for (size_t c = begin; c < end; ++c) {
    const std::vector<CellLoop>& loops = cells_[c].loops;
    const int64_t row_bytes = cells_[c].row * element_bytes_;
    if (loops.empty() || loops.back().count * row_bytes < kFarLoopBytes) return false;
    bytes += std::accumulate(
        loops.begin(), loops.end(), row_bytes,
        [](int64_t product, const CellLoop& loop) { return product * loop.count; });
  }
  return bytes >= kFarBytes;
}

// Whether two cells lie in the same rows of the region, and these are so short that
// the processor would prefetch the other cell.
bool MultiFetch::IsBeside(const Cell& first, const Cell& cell) const {
  if (first.loops.empty() || first.loops.size() != cell.loops.size()) return false;
  int64_t bytes = cell.row * element_bytes_;
  for (size_t i = 0; i < cell.loops.size(); ++i) {
    if (first.loops[i].count != cell.loops[i].count ||
        first.loops[i].to_stride != cell.loops[i].to_stride) {
      return false;
    }
    bytes *= cell.loops[i].count;
  }
  const int64_t pitch = first.loops.back().to_stride;
  return first.offset / pitch == cell.offset / pitch &&
         pitch * element_bytes_ <= kBandBytes && bytes < kStreamBytes;
}

void MultiFetch::Run(const void* const* sources, void* region) const {
  const auto place = [&](const CellTerm& term) -> const char* {
    if (term.source == kNoSource) return nullptr;
    return static_cast<const char*>(sources[term.source]) + term.offset * element_bytes_;
  };
  // The position in every array, for every loop, and for a row.
  std::vector<const char*> from((max_loops_ + 2) * max_places_);
  char* const to = static_cast<char*>(region);
  for (const Group& group : groups_) {
    for (size_t c = group.begin; c < group.end; ++c) {
      from[c - group.begin] = place(cells_[c].terms[0]);
    }
    CopyGroup(group, 0, from.data(), to);
  }
  if (combine_ == nullptr) return;
  for (const Cell& cell : cells_) {
    std::transform(cell.terms.begin(), cell.terms.end(), from.begin(), place);
    ReduceCell(cell, 0, from.data(), to + cell.offset * element_bytes_);
  }
}

// The loops of a group from number `depth` on. `from` has space for the positions
// that its inner loops change.
void MultiFetch::CopyGroup(const Group& group, size_t depth, const char** from,
                           char* to) const {
  static const CellLoop kOnce{1, 0, {0}};
  const size_t num_cells = group.end - group.begin;
  const Cell* const cells = &cells_[group.begin];
  const size_t num_loops = cells[0].loops.size();
  const CellLoop& loop = depth < num_loops ? cells[0].loops[depth] : kOnce;
  const bool is_innermost = depth + 1 >= num_loops;
  const int64_t step = is_innermost ? group.band_rows : 1;
  const char** inner = from + num_cells;
  std::copy(from, inner, inner);
  for (int64_t i = 0; i < loop.count; i += step) {
    if (!is_innermost) CopyGroup(group, depth + 1, inner, to);
    for (size_t c = 0; c < num_cells; ++c) {
      const CellLoop& own = num_loops == 0 ? kOnce : cells[c].loops[depth];
      if (is_innermost) {
        CopyRowsOf(cells[c], own, std::min(step, loop.count - i), inner[c],
                   to + cells[c].offset * element_bytes_, group.is_far);
      }
      if (inner[c] != nullptr) inner[c] += step * own.from_strides[0] * element_bytes_;
    }
    to += step * loop.to_stride * element_bytes_;
  }
}

// Rows of the innermost loop of a cell with one term.
void MultiFetch::CopyRowsOf(const Cell& cell, const CellLoop& loop, int64_t rows,
                            const char* from, char* to, bool is_far) const {
  const int64_t to_stride = loop.to_stride * element_bytes_;
  if (from != nullptr) {
    return CopyRows(to, to_stride, from, loop.from_strides[0] * element_bytes_, rows,
                    cell.row * element_bytes_, is_far);
  }
  for (int64_t row = 0; row < rows; ++row) {
    FillRow(to + row * to_stride, fill_, element_bytes_, cell.row);
  }
}

// The loops of a cell with several terms from number `depth` on; `from` as above.
void MultiFetch::ReduceCell(const Cell& cell, size_t depth, const char** from,
                            char* to) const {
  if (depth == cell.loops.size()) return ReduceRow(cell, from, to);
  const CellLoop& loop = cell.loops[depth];
  const char** inner = from + spec_.num_terms;
  std::copy(from, inner, inner);
  for (int64_t i = 0; i < loop.count; ++i) {
    ReduceCell(cell, depth + 1, inner, to);
    to += loop.to_stride * element_bytes_;
    for (int t = 0; t < spec_.num_terms; ++t) {
      if (inner[t] != nullptr) inner[t] += loop.from_strides[t] * element_bytes_;
    }
  }
}

// One row of a cell with several terms.
void MultiFetch::ReduceRow(const Cell& cell, const char** from, char* to) const {
  const char** rows = from + spec_.num_terms;
  std::copy(from, rows, rows);
  std::replace(rows, rows + spec_.num_terms, static_cast<const char*>(nullptr),
               fill_row_.data());
  combine_(to, rows, spec_.num_terms, cell.row);
}

}  // namespace tofu
