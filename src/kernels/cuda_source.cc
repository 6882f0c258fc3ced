#include "kernels/cuda_source.h"

#include <algorithm>

#include "kernels/cuda_text.h"
#include "kernels/multifetch.h"

namespace tofu {
namespace {

constexpr int64_t kVectorBytes = 16;  // the most that one instruction moves
constexpr int64_t kMaxBlocks = 4096;  // of a kernel, in which every cell has at least one
// More would take longer to compile, or to look up, than they save.
constexpr size_t kMaxForms = 24;
constexpr size_t kMaxCells = 2048;
// The reach of 32-bit indices, less one more step of all threads.
constexpr int64_t kNarrowBytes = int64_t{1} << 30;

constexpr char kRowWithTail[] = R"(    if (column + kBytes <= kRow) {
      Move$f<kBytes>(to_place$given);
    } else {
      for (Index i = 0; column + i < kRow; i += $element) {
        Move$f<$element>(to_place + i$tail);
      }
    }
)";

// Cells that differ only in their start.
struct Form {
  const Cell* example;
  std::vector<const Cell*> cells;
  int64_t vector_bytes;
  int64_t blocks;  // of each cell
};

bool HaveOneForm(const Cell& a, const Cell& b) {
  if (a.row != b.row || a.loops.size() != b.loops.size()) return false;
  for (size_t i = 0; i < a.loops.size(); ++i) {
    const CellLoop& left = a.loops[i];
    const CellLoop& right = b.loops[i];
    if (left.count != right.count || left.to_stride != right.to_stride ||
        left.from_strides != right.from_strides) {
      return false;
    }
  }
  for (size_t t = 0; t < a.terms.size(); ++t) {
    if ((a.terms[t].source == kNoSource) != (b.terms[t].source == kNoSource)) {
      return false;
    }
  }
  return true;
}

// The widest vector that divides all strides and is no longer than a row.
int64_t VectorBytes(const Cell& cell, int64_t element_bytes) {
  int64_t bytes = kVectorBytes;
  const auto fits = [&] {
    if (bytes > cell.row * element_bytes) return false;
    for (const CellLoop& loop : cell.loops) {
      if (loop.to_stride * element_bytes % bytes != 0) return false;
      for (size_t t = 0; t < cell.terms.size(); ++t) {
        const bool is_read = cell.terms[t].source != kNoSource;
        if (is_read && loop.from_strides[t] * element_bytes % bytes != 0) return false;
      }
    }
    return true;
  };
  while (bytes > element_bytes && !fits()) bytes /= 2;
  return bytes;
}

int64_t Rows(const Cell& cell) {
  int64_t rows = 1;
  for (const CellLoop& loop : cell.loops) rows *= loop.count;
  return rows;
}

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

class Emitter {
 public:
  Emitter(const MultiFetchSpec& spec, const std::vector<Cell>& cells)
      : spec_(spec), element_bytes_(ElementBytes(spec.dtype)) {
    is_wide_ = Bytes(spec.shape) > kNarrowBytes;
    for (const Extents& source : spec.sources) {
      is_wide_ = is_wide_ || Bytes(source) > kNarrowBytes;
    }
    for (const Cell& cell : cells) AddCell(cell);
    ShareBlocks(static_cast<int64_t>(cells.size()));
  }

  size_t num_forms() const { return forms_.size(); }

  CudaKernel Emit() const {
    CudaKernel kernel;
    kernel.name = "tofu_fetch";
    kernel.threads = kBlockThreads;
    kernel.num_sources = std::max(1, static_cast<int>(spec_.sources.size()));
    int64_t blocks = 0;
    for (const Form& form : forms_) {
      blocks += form.blocks * static_cast<int64_t>(form.cells.size());
    }
    kernel.blocks = static_cast<int>(std::max<int64_t>(1, blocks));
    std::string& text = kernel.source;
    text = CudaAccess(kernel.num_sources, is_wide_);
    if (spec_.num_terms > 1) text += CudaCombine(spec_.dtype, spec_.reduce);
    for (size_t f = 0; f < forms_.size(); ++f) {
      text += MoveText(f) + RowsText(f) + RunText(f);
      if (forms_[f].cells.size() > 1) text += PlacesText(f);
    }
    text += Replace(R"(
}  // namespace

extern "C" __global__ void __launch_bounds__($threads)
tofu_fetch(char* region, const TofuSources sources) {
  unsigned int block = blockIdx.x;
)",
                    {{"threads", std::to_string(kBlockThreads)}});
    for (size_t f = 0; f < forms_.size(); ++f) text += CallText(f);
    text += "}\n";
    return kernel;
  }

 private:
  int64_t Bytes(const Extents& shape) const {
    int64_t bytes = element_bytes_;
    for (int64_t extent : shape) bytes *= extent;
    return bytes;
  }

  void AddCell(const Cell& cell) {
    const auto found = std::find_if(forms_.begin(), forms_.end(), [&](const Form& form) {
      return HaveOneForm(*form.example, cell);
    });
    if (found != forms_.end()) {
      found->cells.push_back(&cell);
    } else {
      forms_.push_back({&cell, {&cell}, VectorBytes(cell, element_bytes_), 1});
    }
  }

  static int64_t Units(const Form& form, int64_t element_bytes) {
    return Rows(*form.example) *
           CeilDivide(form.example->row * element_bytes, form.vector_bytes);
  }

  void ShareBlocks(int64_t num_cells) {
    int64_t total = 0;
    for (const Form& form : forms_) {
      total += Units(form, element_bytes_) * static_cast<int64_t>(form.cells.size());
    }
    const int64_t spare = std::max(num_cells, kMaxBlocks);
    // Units per block, such that all blocks together are at most `spare`.
    const int64_t units = std::max<int64_t>(kBlockThreads, CeilDivide(total, spare));
    for (Form& form : forms_) {
      form.blocks = std::max<int64_t>(1, Units(form, element_bytes_) / units);
    }
  }

  std::string Number(int64_t value) const { return CudaNumber(value, is_wide_); }

  static std::vector<size_t> ReadTerms(const Form& form) {
    std::vector<size_t> terms;
    for (size_t t = 0; t < form.example->terms.size(); ++t) {
      if (form.example->terms[t].source != kNoSource) terms.push_back(t);
    }
    return terms;
  }

  // ", <before><term><after>" for every term that is read.
  static std::string Each(const Form& form, const std::string& before,
                          const std::string& after) {
    std::string text;
    for (size_t t : ReadTerms(form)) {
      text.append(", ").append(before).append(std::to_string(t)).append(after);
    }
    return text;
  }

  // Moves kBytes bytes of a cell.
  std::string MoveText(size_t f) const {
    const Form& form = forms_[f];
    const auto value = [&](size_t t) {
      return form.example->terms[t].source == kNoSource
                 ? "Filled<kBytes>(" +
                       std::to_string(static_cast<uint64_t>(CudaFill(spec_))) + "ull)"
                 : "Load<kBytes>(from" + std::to_string(t) + ")";
    };
    std::string body;
    if (form.example->terms.size() == 1) {
      body = "  Store<kBytes>(to, " + value(0) + ");\n";
    } else {
      body = "  Totals<kBytes> totals;\n";
      for (size_t t = 0; t < form.example->terms.size(); ++t) {
        body += std::string(t == 0 ? "  Begin" : "  Add") + "<kBytes>(" + value(t) +
                ", &totals);\n";
      }
      body += "  Store<kBytes>(to, End<kBytes>(totals));\n";
    }
    return Replace(R"(
template <int kBytes>
__device__ __forceinline__ void Move$f(char* to$parameters) {
$body}
)",
                   {{"f", std::to_string(f)},
                    {"parameters", Each(form, "const char* from", "")},
                    {"body", body}});
  }

  // Text that turns `rest`, the number of a row, into indices and positions.
  std::string WalkText(const Form& form) const {
    const std::vector<CellLoop>& loops = form.example->loops;
    std::string text;
    std::string to = "column";
    std::vector<std::string> from(form.example->terms.size(), "column");
    const auto go = [&](const std::string& index, int64_t stride, std::string* place) {
      place->append(" + ").append(index).append(" * ").append(
          Number(stride * element_bytes_));
    };
    if (!loops.empty()) text = "    Index rest = unit / kUnits;\n";
    for (size_t i = loops.size(); i-- > 0;) {
      const std::string index = "i" + std::to_string(i);
      text += Replace(i > 0 ? "    const Index $i = rest % $count;\n    rest /= $count;\n"
                            : "    const Index $i = rest;\n",
                      {{"i", index}, {"count", Number(loops[i].count)}});
      go(index, loops[i].to_stride, &to);
      for (size_t t : ReadTerms(form)) go(index, loops[i].from_strides[t], &from[t]);
    }
    text += "    char* const to_place = to + (" + to + ");\n";
    for (size_t t : ReadTerms(form)) {
      text += Replace("    const char* const place$t = from$t + ($from);\n",
                      {{"t", std::to_string(t)}, {"from", from[t]}});
    }
    return text;
  }

  // The loops of a cell, unit by unit: a unit is a vector of a row, or the rest of the
  // row after its last whole vector.
  std::string RowsText(size_t f) const {
    const Form& form = forms_[f];
    const int64_t row = form.example->row * element_bytes_;
    std::string move = "    Move$f<kBytes>(to_place$given);\n";
    if (row % form.vector_bytes != 0) move = kRowWithTail;
    return Replace(
        R"(
// $rows rows of $row bytes. Unrolled, the loop's vectors would be stored in parts.
template <int kBytes>
__device__ __forceinline__ void Rows$f(char* __restrict__ to$parameters, Index first,
                                       Index step) {
  const Index kRow = $number;
  const Index kUnits = (kRow + kBytes - 1) / kBytes;
#pragma unroll 1
  for (Index unit = first; unit < $all * kUnits; unit += step) {
    const Index column = unit % kUnits * kBytes;
$walk$move  }
}
)",
        {{"move", move},
         {"f", std::to_string(f)},
         {"parameters", Each(form, "const char* __restrict__ from", "")},
         {"number", Number(row)},
         {"all", Number(Rows(*form.example))},
         {"rows", std::to_string(Rows(*form.example))},
         {"row", std::to_string(row)},
         {"walk", WalkText(form)},
         {"given", Each(form, "place", "")},
         {"tail", Each(form, "place", " + i")},
         {"element", std::to_string(element_bytes_)}});
  }

  // The work of block `block` of a cell's `$blocks` blocks.
  std::string RunText(size_t f) const {
    const Form& form = forms_[f];
    const auto rows = [&](int64_t bytes) {
      return "Rows" + std::to_string(f) + "<" + std::to_string(bytes) + ">(to" +
             Each(form, "from", "") + ", first, step);\n";
    };
    std::string body;
    if (form.vector_bytes > element_bytes_) {
      const std::string aligned = "IsAligned<" + std::to_string(form.vector_bytes) + ">(";
      body = "  if (" + aligned + "to)";
      for (size_t t : ReadTerms(form)) {
        body += " && " + aligned + "from" + std::to_string(t) + ")";
      }
      body += ") {\n    " + rows(form.vector_bytes) + "    return;\n  }\n";
    }
    return Replace(R"(
__device__ __forceinline__ void Run$f(char* to$parameters, unsigned int block) {
  const Index first = block * $threads + threadIdx.x;
  const Index step = $step;
$body  $rows}
)",
                   {{"f", std::to_string(f)},
                    {"parameters", Each(form, "const char* from", "")},
                    {"threads", Number(kBlockThreads)},
                    {"step", Number(form.blocks * kBlockThreads)},
                    {"body", body},
                    {"rows", rows(element_bytes_)}});
  }

  // For every cell of a form: its start in the region, and for every term that is read
  // the source and the start in it.
  std::string PlacesText(size_t f) const {
    const Form& form = forms_[f];
    std::string text =
        "\n__device__ const long long kPlaces" + std::to_string(f) + "[] = {\n";
    for (const Cell* cell : form.cells) {
      text += "    " + std::to_string(cell->offset * element_bytes_);
      for (size_t t : ReadTerms(form)) {
        text += ", " + std::to_string(cell->terms[t].source) + ", " +
                std::to_string(cell->terms[t].offset * element_bytes_);
      }
      text += ",\n";
    }
    return text + "};\n";
  }

  // The part of the kernel for one form.
  std::string CallText(size_t f) const {
    const Form& form = forms_[f];
    const auto num_cells = static_cast<int64_t>(form.cells.size());
    std::string body;
    std::string to;
    std::string block = "block";
    std::vector<std::string> tiles;
    std::vector<std::string> offsets;
    if (num_cells == 1) {
      to = std::to_string(form.example->offset * element_bytes_);
      for (size_t t : ReadTerms(form)) {
        const CellTerm& term = form.example->terms[t];
        tiles.push_back(std::to_string(term.source));
        offsets.push_back(std::to_string(term.offset * element_bytes_));
      }
    } else {
      const std::string blocks = CudaNumber(form.blocks, false);
      body = "    const long long* const place = kPlaces" + std::to_string(f) +
             " + block / " + blocks + " * " +
             CudaNumber(1 + 2 * ReadTerms(form).size(), false) + ";\n";
      to = "place[0]";
      block += " % " + blocks;
      for (size_t i = 0; i < ReadTerms(form).size(); ++i) {
        tiles.push_back("place[" + std::to_string(2 * i + 1) + "]");
        offsets.push_back("place[" + std::to_string(2 * i + 2) + "]");
      }
    }
    std::string arguments = "region + " + to;
    for (size_t i = 0; i < tiles.size(); ++i) {
      arguments.append(", sources.at[")
          .append(tiles[i])
          .append("] + ")
          .append(offsets[i]);
    }
    body += "    Run" + std::to_string(f) + "(" + arguments + ", " + block + ");\n";
    std::string text = "  if (block < $blocks) {\n$body    return;\n  }\n";
    if (f + 1 < forms_.size()) text += "  block -= $blocks;\n";
    return Replace(
        text, {{"blocks", CudaNumber(form.blocks * num_cells, false)}, {"body", body}});
  }

  const MultiFetchSpec& spec_;
  const int64_t element_bytes_;
  bool is_wide_ = false;  // whether indices need 64 bits
  std::vector<Form> forms_;
};

}  // namespace

std::optional<CudaKernel> EmitCuda(const MultiFetchSpec& spec) {
  CheckSpec(spec);
  const std::vector<Cell> cells = MakeCells(spec);
  if (spec.sources.size() > kMaxCudaSources || cells.size() > kMaxCells) return {};
  const Emitter emitter(spec, cells);
  if (emitter.num_forms() > kMaxForms) return {};
  return emitter.Emit();
}

}  // namespace tofu
