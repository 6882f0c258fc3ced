#include "support/random_fetch.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/combine.h"
#include "support/indices.h"

namespace tofu {
namespace {

// Cuts [0, extent) at random places; returns the boundaries.
std::vector<int64_t> Boundaries(int64_t extent, std::mt19937* random) {
  std::vector<int64_t> lines = {0, extent};
  for (int i = 0; i < 2; ++i) lines.push_back((*random)() % (extent + 1));
  std::sort(lines.begin(), lines.end());
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  return lines;
}

// An integer that every type can represent, as well as sums and products of these.
double Element(int source, int64_t index) {
  return static_cast<double>((source * 7 + index * 13) % 5);
}

double Value(const MultiFetchSpec& spec, int term, const Index& at) {
  for (const TilePiece& piece : spec.pieces) {
    if (piece.term != term) continue;
    bool inside = true;
    int64_t index = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      const int64_t i = at[d] - piece.to[d];
      inside = inside && i >= 0 && i < piece.extents[d];
      if (piece.source == kNoSource) continue;
      index = index * spec.sources[piece.source][d] + piece.from[d] + i;
    }
    if (inside) return piece.source < 0 ? spec.fill : Element(piece.source, index);
  }
  throw std::logic_error("no piece covers an element");
}

double Reduced(const MultiFetchSpec& spec, const Index& at) {
  double result = Value(spec, 0, at);
  for (int term = 1; term < spec.num_terms; ++term) {
    const double next = Value(spec, term, at);
    if (spec.reduce == Combine::kSum) result += next;
    if (spec.reduce == Combine::kProd) result *= next;
    if (spec.reduce == Combine::kLogSumExp)
      result = std::log(std::exp(result) + std::exp(next));
    if (spec.reduce == Combine::kMax) result = std::max(result, next);
    if (spec.reduce == Combine::kMin) result = std::min(result, next);
  }
  return result;
}

}  // namespace

MultiFetchSpec RandomSpec(int dtype, std::mt19937* random, int64_t grain) {
  MultiFetchSpec spec;
  spec.dtype = dtype;
  const int rank = static_cast<int>((*random)() % 5);
  for (int d = 0; d < rank; ++d) {
    const int64_t sizes[] = {1, 2, 3, 5, 8, 40};
    spec.shape.push_back(sizes[(*random)() % (d + 1 == rank ? 6 : 4)]);
  }
  const int terms[] = {1, 1, 2, 3};
  spec.num_terms = terms[(*random)() % 4];
  spec.reduce = static_cast<Combine>((*random)() % 4);
  spec.fill = static_cast<double>((*random)() % 3);
  for (int term = 0; term < spec.num_terms; ++term) {
    std::vector<std::vector<int64_t>> lines;
    for (int64_t extent : spec.shape) lines.push_back(Boundaries(extent, random));
    Index grid;
    for (int d = 0; d < rank; ++d)
      grid.push_back(static_cast<int64_t>(lines[d].size()) - 1);
    VisitIndices(Index(rank, 0), grid, [&](const Index& at) {
      TilePiece piece;
      piece.term = term;
      Extents source;
      for (int d = 0; d < rank; ++d) {
        piece.to.push_back(lines[d][at[d]]);
        piece.extents.push_back(lines[d][at[d] + 1] - lines[d][at[d]]);
        piece.from.push_back(static_cast<int64_t>((*random)() % 3));
        source.push_back(piece.from[d] + piece.extents[d] +
                         static_cast<int64_t>((*random)() % 2));
      }
      if (rank > 0) {
        for (int64_t* last : {&piece.to.back(), &piece.extents.back(), &piece.from.back(),
                              &source.back()}) {
          *last *= grain;
        }
      }
      if ((*random)() % 8 == 0) {
        piece.from.clear();
      } else {
        piece.source = static_cast<int>(spec.sources.size());
        spec.sources.push_back(source);
      }
      spec.pieces.push_back(std::move(piece));
    });
  }
  if (rank > 0) spec.shape.back() *= grain;
  return spec;
}

std::vector<std::vector<char>> SourceData(const MultiFetchSpec& spec) {
  const int64_t bytes = ElementBytes(spec.dtype);
  std::vector<std::vector<char>> data;
  for (size_t s = 0; s < spec.sources.size(); ++s) {
    data.emplace_back(Elements(spec.sources[s]) * bytes);
    for (int64_t i = 0; i < Elements(spec.sources[s]); ++i) {
      WriteElement(spec.dtype, Element(static_cast<int>(s), i),
                   data[s].data() + i * bytes);
    }
  }
  return data;
}

std::vector<char> ExpectedRegion(const MultiFetchSpec& spec) {
  const int64_t bytes = ElementBytes(spec.dtype);
  std::vector<char> expected(Elements(spec.shape) * bytes);
  int64_t next = 0;
  VisitIndices(Index(spec.shape.size(), 0), spec.shape, [&](const Index& at) {
    WriteElement(spec.dtype, Reduced(spec, at), expected.data() + next++ * bytes);
  });
  return expected;
}

}  // namespace tofu
