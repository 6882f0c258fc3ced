#include "kernels/cuda_source.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>

#include "kernels/combine.h"
#include "kernels/cuda_generic.h"
#include "kernels/emitted/emitted_kernels.h"
#include "kernels/emitted/emitted_specs.h"
#include "kernels/multifetch.h"
#include "support/expect_text.h"
#include "support/indices.h"

namespace tofu {
namespace {

std::string SourceOf(const std::string& spec) { return EmitCuda(ReadSpec(spec))->source; }

// --- Text ----------------------------------------------------------------------

TEST(CudaSource, HasTheBoxesAsConstants) {
  const std::string text = SourceOf(
      "dtype=0 shape=8,64 sources=8,32;9,64; "
      "pieces=0@0,0>0,0:8,32;1@1,4>0,32:8,32");
  ExpectText(text, "8 rows of 128 bytes");
  ExpectText(text, "i0 * 256u");            // stride of the region
  ExpectText(text, "sources.at[1] + 272");  // 1 * 256 + 4 * 4
  ExpectText(text, "unsigned int Index");
  EXPECT_EQ(text.find("kPlaces"), std::string::npos) << "two forms, each of one cell";
}

TEST(CudaSource, IndicesHave64BitsWhereARegionOrASourceIsLarge) {
  const auto is_wide = [](int64_t rows, int64_t source_rows) {
    const std::string text =
        SourceOf("dtype=0 shape=" + std::to_string(rows) +
                 ",256 sources=" + std::to_string(source_rows) +
                 ",256; pieces=0@0,0>0,0:" + std::to_string(rows) + ",256");
    return text.find("unsigned int Index") == std::string::npos;
  };
  constexpr int64_t kGiB = int64_t{1} << 20;  // rows of 1 KiB
  EXPECT_FALSE(is_wide(4, kGiB));
  EXPECT_TRUE(is_wide(4, kGiB + 1)) << "a large source of a small region";
  EXPECT_FALSE(is_wide(kGiB, kGiB));
  EXPECT_TRUE(is_wide(kGiB + 1, kGiB + 1));
}

TEST(CudaSource, MovesTheWidestVectorsThatStridesAllow) {
  const auto rows = [](int64_t width, int64_t source_width) {
    return SourceOf("dtype=0 shape=8," + std::to_string(width) + " sources=8," +
                    std::to_string(source_width) + "; pieces=0@0,0>0,0:8," +
                    std::to_string(width));
  };
  ExpectText(rows(8, 12), "IsAligned<16>");
  ExpectText(rows(8, 10), "IsAligned<8>");
  EXPECT_EQ(rows(8, 9).find("IsAligned<16>("), std::string::npos);
  EXPECT_EQ(rows(7, 8).find("Rows0<16>(to"), std::string::npos);
}

TEST(CudaSource, IsTheSameForFetchesThatMoveTheSameBytes) {
  const char* const boxes = " shape=8,64 sources=8,65; pieces=0@0,0>0,0:8,64";
  EXPECT_EQ(SourceOf(std::string("dtype=0") + boxes),
            SourceOf(std::string("dtype=4") + boxes));
  EXPECT_NE(SourceOf(std::string("dtype=0") + boxes),
            SourceOf(std::string("dtype=2") + boxes));
}

TEST(CudaSource, SharesAFunctionBetweenCellsOfOneForm) {
  std::string spec = "dtype=0 shape=64,4 sources=";
  std::string pieces;
  for (int i = 0; i < 64; ++i) {
    spec += "4;";
    pieces +=
        (i > 0 ? ";" : "") + std::to_string(i) + "@0>" + std::to_string(4 * i) + ":4";
  }
  spec.replace(spec.find("64,4"), 4, "256");
  const CudaKernel kernel = *EmitCuda(ReadSpec(spec + " pieces=" + pieces));
  EXPECT_EQ(kernel.blocks, 64);
  EXPECT_EQ(kernel.num_sources, 64);
  ExpectText(kernel.source, "kPlaces0");
  EXPECT_EQ(kernel.source.find("Rows1"), std::string::npos);
}

// Four pieces of two elements, which lie 16 or 8 bytes apart in the region.
TEST(CudaSource, CellsWithOtherStridesInTheRegionAreOfAnotherForm) {
  const CudaKernel kernel =
      *EmitCuda(ReadSpec("dtype=0 shape=2,2,2 sources=2,1,2;1,2,2; "
                         "pieces=0@0,0,0>0,0,0:2,1,1;0@0,0,1>0,1,0:2,1,1;"
                         "1@0,0,0>0,0,1:1,2,1;1@0,0,1>1,0,1:1,2,1"));
  ExpectText(kernel.source, "Rows1");
  EXPECT_EQ(kernel.source.find("Rows2"), std::string::npos);
}

TEST(CudaSource, LeavesFetchesOfManyFormsToTheGenericKernel) {
  std::string spec = "dtype=0 shape=325 sources=325; pieces=";
  for (int i = 1, at = 0; i <= 25; at += i, ++i) {
    const std::string place = std::to_string(at);
    spec += (i > 1 ? ";0@" : "0@") + place + ">" + place + ":" + std::to_string(i);
  }
  EXPECT_FALSE(EmitCuda(ReadSpec(spec)).has_value());
  EXPECT_FALSE(EmitGenericCuda(ReadSpec(spec)).boxes.empty());
}

TEST(CudaSource, SaysThatThereAreTooManySources) {
  MultiFetchSpec spec;
  spec.shape = {kMaxCudaSources + 1};
  for (int64_t i = 0; i <= kMaxCudaSources; ++i) {
    spec.sources.push_back({1});
    spec.pieces.push_back({static_cast<int>(i), {0}, {i}, {1}, 0});
  }
  EXPECT_FALSE(EmitCuda(spec).has_value());
  try {
    EmitGenericCuda(spec);
    FAIL() << "no error";
  } catch (const SpecError& error) {
    ExpectText(error.what(),
               "found 481 sources, expected at most 480; use TOFU_FETCH=plain");
  }
}

TEST(CudaSource, GenericKernelsDifferByElementAndReductionOnly) {
  const auto text = [](const std::string& spec) {
    return EmitGenericCuda(ReadSpec(spec)).source;
  };
  EXPECT_EQ(text("dtype=0 shape=4 sources=4; pieces=0@0>0:4"),
            text("dtype=4 shape=2,2 sources=3,2; pieces=0@1,0>0,0:2,2"));
  const char* const terms = " sources=1;1; pieces=0@0>0:1#0;1@0>0:1#1 terms=2 reduce=";
  EXPECT_NE(text(std::string("dtype=0 shape=1") + terms + "sum"),
            text(std::string("dtype=0 shape=1") + terms + "max"));
}

// --- Values: the kernels, compiled for the CPU ------------------------------------

// Sources of random numbers, `shift` elements after a multiple of 16 bytes.
class Sources {
 public:
  Sources(const MultiFetchSpec& spec, size_t shift, std::mt19937* random) {
    const int64_t bytes = ElementBytes(spec.dtype);
    for (const Extents& shape : spec.sources) {
      const int64_t count = Elements(shape);
      // calloc does not back untouched pages, and one source is larger than the memory.
      char* const block = static_cast<char*>(std::calloc(count + 2 * shift + 32, bytes));
      const auto past = reinterpret_cast<uintptr_t>(block) % 16;
      char* const data = block + (16 - past) % 16 + shift * bytes;
      const int64_t begin = std::max<int64_t>(0, count - 100000);
      for (int64_t i = begin; i < count; ++i) {
        const double value = static_cast<double>((*random)() % 4001) / 250 - 8;
        WriteElement(spec.dtype, value, data + i * bytes);
      }
      blocks_.push_back(block);
      data_.push_back(data);
    }
  }
  Sources(const Sources&) = delete;
  Sources& operator=(const Sources&) = delete;
  ~Sources() {
    for (char* block : blocks_) std::free(block);
  }

  const char* const* tiles() const { return data_.data(); }
  const std::vector<const char*>& addresses() const { return data_; }

 private:
  std::vector<char*> blocks_;
  std::vector<const char*> data_;
};

// A region of known content, `shift` elements after a multiple of 16 bytes.
struct Region {
  Region(int64_t bytes, int64_t element_bytes, size_t shift)
      : memory(bytes + 64, 'x'),
        data(memory.data() + 16 +
             (16 - reinterpret_cast<uintptr_t>(memory.data()) % 16) % 16 +
             shift * element_bytes) {}
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // Starts before the region, because offsets differ between regions.
  std::string Written(int64_t bytes) const { return {data - 8, data + bytes + 8}; }

  std::vector<char> memory;
  char* data;
};

// The specialized kernel of a specification, and the generic one.
std::vector<CudaKernel> Kernels(const MultiFetchSpec& spec) {
  std::vector<CudaKernel> kernels = {EmitGenericCuda(spec)};
  if (auto own = EmitCuda(spec)) kernels.push_back(*std::move(own));
  return kernels;
}

// Runs a kernel; the test fails if it was not compiled.
void Execute(const CudaKernel& kernel, char* region, std::vector<const char*> sources) {
  const RunEmitted run = FindEmitted(kernel.source.c_str());
  ASSERT_NE(run, nullptr) << "not compiled:\n" << kernel.source;
  const std::vector<long long> boxes(kernel.boxes.begin(), kernel.boxes.end());
  sources.resize(static_cast<size_t>(kernel.num_sources));
  run(kernel.blocks, region, sources.data(), boxes.data());
}

class CudaValues : public testing::TestWithParam<size_t> {};

TEST_P(CudaValues, AreThoseOfTheCpu) {
  const std::vector<MultiFetchSpec> specs = EmittedSpecs();
  for (size_t s = 0; s < specs.size(); ++s) {
    const MultiFetchSpec& spec = specs[s];
    SCOPED_TRACE("number " + std::to_string(s) + ": " + WriteSpec(spec));
    std::mt19937 random(static_cast<unsigned>(s));
    const Sources sources(spec, GetParam(), &random);
    const int64_t element = ElementBytes(spec.dtype);
    const int64_t bytes = Elements(spec.shape) * element;
    Region expected(bytes, element, GetParam());
    std::vector<const void*> tiles(sources.tiles(),
                                   sources.tiles() + spec.sources.size());
    MultiFetch(spec).Run(tiles.data(), expected.data);
    for (const CudaKernel& kernel : Kernels(spec)) {
      Region region(bytes, element, GetParam());
      Execute(kernel, region.data, sources.addresses());
      ASSERT_EQ(region.Written(bytes), expected.Written(bytes));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Alignments, CudaValues, testing::Values(0, 1),
                         [](const auto& suite) {
                           return suite.param == 0 ? "aligned" : "unaligned";
                         });

TEST(CudaValues, CoverKernelsOfAllKinds) {
  int own = 0;
  int vectors = 0;
  int reduced = 0;
  for (const MultiFetchSpec& spec : EmittedSpecs()) {
    const auto kernel = EmitCuda(spec);
    if (!kernel.has_value()) continue;
    ++own;
    vectors += kernel->source.find("IsAligned<16>(") != std::string::npos;
    reduced += spec.num_terms > 1 && Elements(spec.shape) > 0;
  }
  EXPECT_GT(own, 40);
  EXPECT_GT(vectors, 20);
  EXPECT_GT(reduced, 20);
}

// NaN, infinity and zero in half precision, summed, as numbers of 16 bits.
TEST(CudaValues, OfHalfPrecisionAreRoundedAsOnTheCpu) {
  const std::vector<MultiFetchSpec> specs = EmittedSpecs();
  int checked = 0;
  for (size_t s = 0; s < specs.size(); ++s) {
    const MultiFetchSpec& spec = specs[s];
    const bool is_half = spec.dtype == 2 || spec.dtype == 12;
    const uint16_t infinity = spec.dtype == 2 ? 0x7c00 : 0x7f80;
    if (!is_half || spec.num_terms == 1 || Elements(spec.shape) == 0) continue;
    SCOPED_TRACE("number " + std::to_string(s) + ": " + WriteSpec(spec));
    std::mt19937 random(static_cast<unsigned>(s));
    std::vector<std::vector<uint16_t>> data;
    std::vector<const void*> tiles;
    for (const Extents& shape : spec.sources) {
      data.emplace_back(Elements(shape) + 1);
      for (uint16_t& bits : data.back()) {
        bits = random() % 8 == 0 ? infinity : static_cast<uint16_t>(random());
      }
    }
    for (const auto& source : data) tiles.push_back(source.data());
    std::vector<const char*> addresses;
    for (const void* tile : tiles) addresses.push_back(static_cast<const char*>(tile));
    std::vector<uint16_t> expected(Elements(spec.shape));
    MultiFetch(spec).Run(tiles.data(), expected.data());
    for (const CudaKernel& kernel : Kernels(spec)) {
      std::vector<uint16_t> sums(expected.size());
      Execute(kernel, reinterpret_cast<char*>(sums.data()), addresses);
      EXPECT_EQ(sums, expected);
    }
    ++checked;
  }
  EXPECT_GT(checked, 2);
}

// --- Indices of 64 bits ----------------------------------------------------------

// A pattern of bytes, repeated in the address space but not in memory. The period divides
// no power of 2, so an index without its upper bits would read other bytes.
class Repeated {
 public:
  explicit Repeated(int64_t bytes) : bytes_(bytes + kPeriod) {
    const int file = memfd_create("pattern", 0);
    if (file < 0 || ftruncate(file, kPeriod) != 0) throw std::runtime_error("no memory");
    data_ = static_cast<char*>(mmap(nullptr, bytes_, PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (int64_t at = 0; at + kPeriod <= bytes_; at += kPeriod) {
      mmap(data_ + at, kPeriod, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    }
    close(file);
    for (int64_t at = 0; at < kPeriod; ++at) data_[at] = At(at);
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  ~Repeated() { munmap(data_, bytes_); }

  // From 1 to 63, so that the sum of two is neither 0 nor too large.
  static char At(int64_t place) {
    const auto number = static_cast<uint64_t>(place % kPeriod) * 0x9e3779b97f4a7c15u;
    return static_cast<char>(1 + number % 63);
  }
  const char* data() const { return data_; }

 private:
  static constexpr int64_t kPeriod = 3 << 20;
  int64_t bytes_;
  char* data_;
};

// A region of which only the written pages exist.
class Sparse {
 public:
  explicit Sparse(int64_t bytes) : bytes_(bytes) {
    data_ = static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    madvise(data_, bytes_, MADV_NOHUGEPAGE);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  ~Sparse() { munmap(data_, bytes_); }

  char* data() const { return data_; }

  // Calls `see(place)` for every byte that is not 0.
  template <typename See>
  void ForEach(const See& see) const {
    const int64_t page = sysconf(_SC_PAGESIZE);
    std::vector<unsigned char> is_there((bytes_ + page - 1) / page);
    ASSERT_EQ(mincore(data_, bytes_, is_there.data()), 0);
    for (size_t p = 0; p < is_there.size(); ++p) {
      if ((is_there[p] & 1) == 0) continue;
      const int64_t begin = static_cast<int64_t>(p) * page;
      for (int64_t at = begin; at < std::min(begin + page, bytes_); ++at) {
        if (data_[at] != 0) see(at);
      }
    }
  }

 private:
  int64_t bytes_;
  char* data_;
};

// One block in the middle walks through the whole region, at a distance.
TEST(CudaWide, RegionsOf4GiBOf2To31ElementsAreRight) {
  for (const WideSpec& wide : WideSpecs()) {
    const MultiFetchSpec spec = ReadSpec(wide.text);
    SCOPED_TRACE(wide.text);
    const int64_t element = ElementBytes(spec.dtype);
    const int64_t bytes = Elements(spec.shape) * element;
    ASSERT_GT(bytes, int64_t{1} << 32);
    ASSERT_GT(Elements(spec.shape), int64_t{1} << 31);
    const Repeated pattern(Elements(spec.sources[0]) * element);
    const std::vector<const char*> data(spec.sources.size(), pattern.data());
    for (const CudaKernel& kernel : Kernels(spec)) {
      const Sparse region(bytes);
      RunOnlyBlock(kernel.blocks - 1);
      Execute(kernel, region.data(), data);
      RunOnlyBlock(-1);
      int64_t written = 0;
      int64_t last = 0;
      int64_t wrong = 0;
      region.ForEach([&](int64_t at) {
        ++written;
        last = at;
        const int64_t row = at / wide.row_bytes;
        const int64_t from =
            row * wide.from_row_bytes + at % wide.row_bytes + wide.skipped_bytes;
        wrong +=
            region.data()[at] != static_cast<char>(spec.num_terms * Repeated::At(from));
      });
      EXPECT_EQ(wrong, 0);
      EXPECT_GT(last, int64_t{1} << 32);
      const double share = static_cast<double>(bytes) / kernel.blocks;
      EXPECT_NEAR(static_cast<double>(written), share, share / 100);
    }
  }
}

}  // namespace
}  // namespace tofu
