// The specification of one MultiFetch, in numbers only. The pass that adds a fetch to
// a graph writes it; the kernels read it.
//
// Errors: SpecError for text that is not a specification; it says what was found
//         and what was expected.
#ifndef TOFU_FETCH_MULTIFETCH_SPEC_H_
#define TOFU_FETCH_MULTIFETCH_SPEC_H_

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/short_vector.h"

namespace tofu {

using Extents = ShortVector<int64_t, 4>;

enum class Combine { kSum, kMax, kMin, kProd, kLogSumExp };

// Elements without a source get the fill value.
constexpr int kNoSource = -1;

// A box copied from one source into the region, in elements. `from` and `to` are
// its lowest corners within the source and within the region.
struct TilePiece {
  int source = kNoSource;
  Extents from;  // unused without a source
  Extents to;
  Extents extents;
  int term = 0;  // terms overlap and are reduced, in this order
};

// Every term's pieces cover the region exactly once.
struct MultiFetchSpec {
  int dtype = 0;                 // MXNet's type flag
  Extents shape;                 // of the region
  std::vector<Extents> sources;  // shapes of the source arrays, dense, row-major
  std::vector<TilePiece> pieces;
  int num_terms = 1;
  Combine reduce = Combine::kSum;
  double fill = 0;
};

class SpecError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// The bytes of one element; SpecError for an unknown type flag.
int64_t ElementBytes(int dtype);

// The row-major strides of a dense array, in elements.
Extents DenseStrides(const Extents& shape);

// Checks boxes, sources, terms and coverage.
void CheckSpec(const MultiFetchSpec& spec);

// Writes one line, such as
// "dtype=0 shape=4,8 sources=2,8;2,8; pieces=0@0,0>0,0:2,8;1@0,0>2,0:2,8".
// A piece is source@from>to:extents, with "-" for no source, followed by #term
// if there are several terms.
std::string WriteSpec(const MultiFetchSpec& spec);
MultiFetchSpec ReadSpec(const std::string& text);

}  // namespace tofu

#endif  // TOFU_FETCH_MULTIFETCH_SPEC_H_
