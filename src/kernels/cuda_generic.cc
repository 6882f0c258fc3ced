#include "kernels/cuda_generic.h"

#include <algorithm>

#include "kernels/cuda_text.h"
#include "kernels/multifetch.h"

namespace tofu {
namespace {

constexpr int64_t kChunk = 1024;  // elements that a block handles at a time
constexpr int64_t kMaxBlocks = 4096;

// The boxes, as numbers of 64 bits:
//   cells, terms, loops, total chunks, bits of the fill value;
//   for every cell its first chunk;
//   for every cell: elements; its start in the region; source (-1: none) and offset of
//   every term; and its loops, innermost first: count, stride in the region, strides of
//   every term. Loops that a cell lacks run once.
constexpr size_t kHeader = 5;
constexpr size_t kChunks = 3;

constexpr char kKernel[] = R"(
// The position of an element of a cell. `strides` are the first loop's; loops are
// `words` numbers apart, and their counts are `back` before their strides.
__device__ __forceinline__ long long Place(long long index, const long long* strides,
                                           long long loops, long long words, long long back) {
  long long place = 0;
  for (long long loop = 0; loop < loops; ++loop, strides += words) {
    const long long count = strides[-back];
    place += index % count * strides[0];
    index /= count;
  }
  return place;
}

// One element of a term.
__device__ __forceinline__ Words<kBytes> Value(const long long* cell, long long term,
                                               long long index, const TofuSources& sources,
                                               const long long* boxes) {
  const long long terms = boxes[1];
  const long long source = cell[2 + 2 * term];
  if (source < 0) return Filled<kBytes>(static_cast<unsigned long long>(boxes[4]));
  const long long* const strides = cell + 2 + 2 * terms + 2 + term;
  const long long place = cell[3 + 2 * term] +
                          Place(index, strides, boxes[2], 2 + terms, 2 + term);
  return Load<kBytes>(sources.at[source] + place * kBytes);
}

// The last cell that starts at or before a chunk.
__device__ __forceinline__ long long FindCell(const long long* begins, long long cells,
                                              long long chunk) {
  long long low = 0;
  while (cells - low > 1) {
    const long long middle = (low + cells) / 2;
    if (begins[middle] <= chunk) {
      low = middle;
    } else {
      cells = middle;
    }
  }
  return low;
}

}  // namespace

extern "C" __global__ void __launch_bounds__($threads)
tofu_fetch(char* region, const TofuSources sources, const long long* boxes) {
  const long long cells = boxes[0];
  const long long terms = boxes[1];
  const long long* const begins = boxes + $header;
  for (long long chunk = blockIdx.x; chunk < boxes[3]; chunk += gridDim.x) {
    const long long number = FindCell(begins, cells, chunk);
    const long long* const cell =
        begins + cells + number * (2 + 2 * terms + boxes[2] * (2 + terms));
    const long long begin = (chunk - begins[number]) * $chunk;
    for (long long i = threadIdx.x; i < $chunk && begin + i < cell[0]; i += $threads) {
      const long long index = begin + i;
      const long long to =
          cell[1] + Place(index, cell + 2 + 2 * terms + 1, boxes[2], 2 + terms, 1);
$body    }
  }
}
)";

constexpr char kCopyBody[] =
    R"(      Store<kBytes>(region + to * kBytes, Value(cell, 0, index, sources, boxes));
)";

constexpr char kCombineBody[] = R"(      Totals<kBytes> totals;
      Begin<kBytes>(Value(cell, 0, index, sources, boxes), &totals);
      for (long long term = 1; term < terms; ++term) {
        Add<kBytes>(Value(cell, term, index, sources, boxes), &totals);
      }
      Store<kBytes>(region + to * kBytes, End<kBytes>(totals));
)";

int64_t Elements(const Cell& cell) {
  int64_t elements = cell.row;
  for (const CellLoop& loop : cell.loops) elements *= loop.count;
  return elements;
}

void AppendLoop(const CellLoop& loop, std::vector<int64_t>* boxes) {
  boxes->push_back(loop.count);
  boxes->push_back(loop.to_stride);
  boxes->insert(boxes->end(), loop.from_strides.begin(), loop.from_strides.end());
}

void AppendCell(const Cell& cell, size_t num_loops, std::vector<int64_t>* boxes) {
  boxes->push_back(Elements(cell));
  boxes->push_back(cell.offset);
  for (const CellTerm& term : cell.terms) {
    boxes->push_back(term.source);
    boxes->push_back(term.offset);
  }
  AppendLoop({cell.row, 1, Extents(cell.terms.size(), 1)}, boxes);
  for (size_t i = cell.loops.size(); i-- > 0;) AppendLoop(cell.loops[i], boxes);
  const CellLoop once{1, 0, Extents(cell.terms.size(), 0)};
  for (size_t i = cell.loops.size() + 1; i < num_loops; ++i) AppendLoop(once, boxes);
}

std::vector<int64_t> Boxes(const MultiFetchSpec& spec) {
  const std::vector<Cell> cells = MakeCells(spec);
  size_t num_loops = 1;  // the row
  for (const Cell& cell : cells) num_loops = std::max(num_loops, cell.loops.size() + 1);
  std::vector<int64_t> boxes = {static_cast<int64_t>(cells.size()), spec.num_terms,
                                static_cast<int64_t>(num_loops), 0, CudaFill(spec)};
  for (const Cell& cell : cells) {
    boxes.push_back(boxes[kChunks]);
    boxes[kChunks] += (Elements(cell) + kChunk - 1) / kChunk;
  }
  for (const Cell& cell : cells) AppendCell(cell, num_loops, &boxes);
  return boxes;
}

}  // namespace

CudaKernel EmitGenericCuda(const MultiFetchSpec& spec) {
  CheckSpec(spec);
  if (spec.sources.size() > kMaxCudaSources) {
    throw SpecError("MultiFetch on a GPU: found " + std::to_string(spec.sources.size()) +
                    " sources, expected at most " + std::to_string(kMaxCudaSources) +
                    "; use TOFU_FETCH=plain");
  }
  CudaKernel kernel;
  kernel.name = "tofu_fetch";
  kernel.threads = kBlockThreads;
  kernel.num_sources = kMaxCudaSources;
  kernel.boxes = Boxes(spec);
  kernel.blocks =
      static_cast<int>(std::clamp<int64_t>(kernel.boxes[kChunks], 1, kMaxBlocks));
  const bool is_combined = spec.num_terms > 1;
  std::string& text = kernel.source;
  text = CudaAccess(kernel.num_sources, true);
  if (is_combined) text += CudaCombine(spec.dtype, spec.reduce);
  text += "\nconst int kBytes = " + std::to_string(ElementBytes(spec.dtype)) + ";\n";
  text += Replace(kKernel, {{"threads", std::to_string(kBlockThreads)},
                            {"header", std::to_string(kHeader)},
                            {"chunk", std::to_string(kChunk)},
                            {"body", is_combined ? kCombineBody : kCopyBody}});
  return kernel;
}

}  // namespace tofu
