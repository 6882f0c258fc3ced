// MultiFetch on CPUs: assembles a region from the tiles of several workers in
// one call, without intermediate buffers (paper section 6).
//
//   const MultiFetch fetch(spec);           // once per specification
//   fetch.Run(addresses, region);           // addresses[i] of source i
//
// The specification is cut into cells: boxes of the region in which every term
// comes from one source. A cell is copied row by row or, with several terms,
// reduced row by row; dimensions that are contiguous in all arrays are merged.
// Cells that share rows of the region are copied in turns.
//
// Errors:     SpecError for a specification whose pieces do not fit.
// Complexity: Run reads and writes every element once per term.
#ifndef TOFU_KERNELS_MULTIFETCH_H_
#define TOFU_KERNELS_MULTIFETCH_H_

#include <cstdint>
#include <vector>

#include "fetch/multifetch_spec.h"
#include "kernels/combine.h"

namespace tofu {

// One array of a cell: where it starts, in elements. kNoSource: fill value.
struct CellTerm {
  int source = kNoSource;
  int64_t offset = 0;
};

// A loop around the rows of a cell.
struct CellLoop {
  int64_t count = 1;
  int64_t to_stride = 0;  // elements, of the region
  Extents from_strides;   // elements, per term
};

struct Cell {
  int64_t offset = 0;  // of its first element in the region
  std::vector<CellTerm> terms;
  std::vector<CellLoop> loops;  // outermost first
  int64_t row = 1;              // contiguous elements in all arrays
};

// The cells of a specification that CheckSpec accepts; empty ones are left out.
std::vector<Cell> MakeCells(const MultiFetchSpec& spec);

class MultiFetch {
 public:
  explicit MultiFetch(const MultiFetchSpec& spec);

  // `sources[i]` is the address of source i, `region` that of the result, which
  // no source overlaps.
  void Run(const void* const* sources, void* region) const;

  const MultiFetchSpec& spec() const { return spec_; }
  const std::vector<Cell>& cells() const { return cells_; }

 private:
  // Cells [begin, end), and how many rows of one cell are copied before the next cell's.
  struct Group {
    size_t begin;
    size_t end;
    int64_t band_rows;
    bool is_far;  // see CopyRows
  };

  void MakeGroups();
  bool IsFar(size_t begin, size_t end) const;
  bool IsBeside(const Cell& first, const Cell& cell) const;
  void CopyGroup(const Group& group, size_t depth, const char** from, char* to) const;
  void CopyRowsOf(const Cell& cell, const CellLoop& loop, int64_t rows, const char* from,
                  char* to, bool is_far) const;
  void ReduceCell(const Cell& cell, size_t depth, const char** from, char* to) const;
  void ReduceRow(const Cell& cell, const char** from, char* to) const;

  MultiFetchSpec spec_;
  int64_t element_bytes_;
  std::vector<Cell> cells_;
  std::vector<Group> groups_;  // of cells of one term
  size_t max_loops_ = 0;
  size_t max_places_ = 0;          // arrays that are read in turns, or reduced
  CombineRows combine_ = nullptr;  // of several terms
  char fill_[8] = {};              // one element
  std::vector<char> fill_row_;     // as long as the longest row that is reduced
};

}  // namespace tofu

#endif  // TOFU_KERNELS_MULTIFETCH_H_
