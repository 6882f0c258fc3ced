#include "kernels/cuda_text.h"

#include <array>
#include <cstring>

#include "kernels/combine.h"

namespace tofu {
namespace {

constexpr int kFloat16 = 2;
constexpr int kBool = 7;
constexpr int kBFloat16 = 12;
// By MXNet's type flag. Half precision is kept as bits.
constexpr std::array<const char*, 13> kElements = {
    "float",         "double",         "unsigned short", "unsigned char",
    "int",           "signed char",    "long long",      "unsigned char",
    "short",         "unsigned short", "unsigned int",   "unsigned long long",
    "unsigned short"};
// The types of sums and products. Integers wrap around, which only unsigned types
// may.
constexpr std::array<const char*, 13> kAccumulators = {"float",
                                                       "double",
                                                       "float",
                                                       "unsigned int",
                                                       "unsigned int",
                                                       "unsigned int",
                                                       "unsigned long long",
                                                       "unsigned int",
                                                       "unsigned int",
                                                       "unsigned int",
                                                       "unsigned int",
                                                       "unsigned long long",
                                                       "float"};

constexpr char kAccess[] = R"(// Made by tofu: one MultiFetch.
typedef $index Index;
typedef unsigned long long Address;

// Addresses of sources.
struct TofuSources {
  const char* at[$sources];
};

namespace {

// The words that one instruction loads or stores.
template <int kBytes>
struct alignas(kBytes) Words {
  typedef unsigned int Word;
  Word at[kBytes / 4];
};
template <>
struct alignas(2) Words<2> {
  typedef unsigned short Word;
  Word at[1];
};
template <>
struct alignas(1) Words<1> {
  typedef unsigned char Word;
  Word at[1];
};

template <int kBytes>
__device__ __forceinline__ Words<kBytes> Load(const char* from) {
  return *reinterpret_cast<const Words<kBytes>*>(from);
}

template <int kBytes>
__device__ __forceinline__ void Store(char* to, const Words<kBytes>& words) {
  *reinterpret_cast<Words<kBytes>*>(to) = words;
}

template <int kBytes>
__device__ __forceinline__ bool IsAligned(const char* place) {
  return (reinterpret_cast<Address>(place) & (kBytes - 1)) == 0;
}

// Eight bytes of the repeated fill value.
template <int kBytes>
__device__ __forceinline__ Words<kBytes> Filled(unsigned long long bits) {
  typedef typename Words<kBytes>::Word Word;
  Words<kBytes> words;
#pragma unroll
  for (int i = 0; i < int(sizeof(words) / sizeof(words.at[0])); ++i) {
    words.at[i] = static_cast<Word>(bits >> (i % 2 * 32));
  }
  return words;
}
)";

constexpr char kFloat16Text[] = R"(
__device__ __forceinline__ float FloatOfBits(unsigned int bits) {
  union { unsigned int bits; float value; } both;
  both.bits = bits;
  return both.value;
}

__device__ __forceinline__ unsigned int BitsOfFloat(float value) {
  union { unsigned int bits; float value; } both;
  both.value = value;
  return both.bits;
}

// A product makes subnormal numbers normal; all exponent bits set: infinity or NaN.
__device__ __forceinline__ float Widen(Element half) {
  const unsigned int sign = (half & 0x8000u) << 16;
  const unsigned int rest = (half & 0x7fffu) << 13;
  const unsigned int finite = BitsOfFloat(FloatOfBits(rest) * FloatOfBits(0x77800000u));
  return FloatOfBits(sign | (rest >= 0x0f800000u ? rest | 0x7f800000u : finite));
}

// Rounds to nearest, ties to even.
__device__ __forceinline__ Element Narrow(float value) {
  const unsigned int bits = BitsOfFloat(value);
  const unsigned int sign = (bits >> 16) & 0x8000u;
  const unsigned int size = bits & 0x7fffffffu;
  const unsigned int normal =
      (size - (112u << 23) + 0x0fffu + ((size >> 13) & 1u)) >> 13;
  const unsigned int small = BitsOfFloat(FloatOfBits(size) + 0.5f) - 0x3f000000u;
  unsigned int half = size < (113u << 23) ? small : normal;
  half = size >= 0x477ff000u ? 0x7c00u : half;
  half = size > 0x7f800000u ? 0x7e00u : half;
  return static_cast<Element>(sign | half);
}
)";

constexpr char kBFloat16Text[] = R"(
__device__ __forceinline__ float Widen(Element half) {
  union { unsigned int bits; float value; } both;
  both.bits = static_cast<unsigned int>(half) << 16;
  return both.value;
}

// Rounds to nearest, ties to even.
__device__ __forceinline__ Element Narrow(float value) {
  union { unsigned int bits; float value; } both;
  both.value = value;
  const unsigned int bits = both.bits;
  const unsigned int rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<Element>(is_nan ? (bits >> 16) | 0x40u : rounded);
}
)";

constexpr char kSameText[] = R"(
__device__ __forceinline__ Accumulator Widen(Element value) {
  return static_cast<Accumulator>(value);
}

__device__ __forceinline__ Element Narrow(Accumulator value) {
  return static_cast<Element>(value);
}
)";

constexpr char kCombineText[] = R"(
// Comparing a number with itself is false only for NaN.
__device__ __forceinline__ Accumulator Combined(Accumulator a, Accumulator b) {
  return $combined;
}

template <int kBytes>
union Vector {
  Words<kBytes> words;
  Element at[kBytes / sizeof(Element)];
};

// The elements of a vector while all terms are combined.
template <int kBytes>
struct Totals {
  Accumulator at[kBytes / sizeof(Element)];
};

template <int kBytes>
__device__ __forceinline__ void Begin(const Words<kBytes>& words, Totals<kBytes>* totals) {
  Vector<kBytes> vector;
  vector.words = words;
#pragma unroll
  for (int i = 0; i < int(kBytes / sizeof(Element)); ++i) {
    totals->at[i] = Widen(vector.at[i]);
  }
}

template <int kBytes>
__device__ __forceinline__ void Add(const Words<kBytes>& words, Totals<kBytes>* totals) {
  Vector<kBytes> vector;
  vector.words = words;
#pragma unroll
  for (int i = 0; i < int(kBytes / sizeof(Element)); ++i) {
    totals->at[i] = Combined(totals->at[i], Widen(vector.at[i]));
  }
}
)";

constexpr char kEndText[] = R"(
template <int kBytes>
__device__ __forceinline__ Words<kBytes> End(const Totals<kBytes>& totals) {
  Vector<kBytes> vector;
#pragma unroll
  for (int i = 0; i < int(kBytes / sizeof(Element)); ++i) {
    vector.at[i] = Narrow(totals.at[i]);
  }
  return vector.words;
}
)";

// Small elements are combined into words: compilers would store two at a time.
constexpr char kSmallEndText[] = R"(
template <int kBytes>
__device__ __forceinline__ Words<kBytes> End(const Totals<kBytes>& totals) {
  typedef typename Words<kBytes>::Word Word;
  const int kPerWord = sizeof(Word) / sizeof(Element);
  Words<kBytes> words;
#pragma unroll
  for (int i = 0; i < int(kBytes / sizeof(Element)); ++i) {
    const unsigned int bits = static_cast<unsigned int>(Narrow(totals.at[i])) & $mask;
    const unsigned int before = i % kPerWord == 0 ? 0u : words.at[i / kPerWord];
    words.at[i / kPerWord] = static_cast<Word>(before | bits << (i % kPerWord * $bits));
  }
  return words;
}
)";

const char* CombinedText(Combine combine) {
  switch (combine) {
    case Combine::kMax:
      return "(a > b) | (a != a) ? a : b";
    case Combine::kMin:
      return "(a < b) | (a != a) ? a : b";
    case Combine::kProd:
      return "a * b";
    case Combine::kLogSumExp:
      return "(a > b ? a : b) + log1p(a == b ? Accumulator(1) : exp(a > b ? b - a : a - "
             "b))";
    case Combine::kSum:
      break;
  }
  return "a + b";
}

}  // namespace

std::string Replace(std::string text,
                    const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [key, value] : values) {
    const std::string mark = "$" + key;
    for (size_t at = text.find(mark); at != std::string::npos;
         at = text.find(mark, at + value.size())) {
      text.replace(at, mark.size(), value);
    }
  }
  return text;
}

std::string CudaNumber(int64_t value, bool is_wide) {
  return std::to_string(value) + (is_wide ? "ull" : "u");
}

std::string CudaAccess(int num_sources, bool is_wide) {
  return Replace(kAccess, {{"index", is_wide ? "unsigned long long" : "unsigned int"},
                           {"sources", std::to_string(num_sources)}});
}

int64_t CudaFill(const MultiFetchSpec& spec) {
  const size_t bytes = static_cast<size_t>(ElementBytes(spec.dtype));
  char pattern[8];
  for (size_t at = 0; at < sizeof(pattern); at += bytes) {
    WriteElement(spec.dtype, spec.fill, pattern + at);
  }
  int64_t bits = 0;
  static_assert(sizeof(bits) == sizeof(pattern));
  std::memcpy(&bits, pattern, sizeof(bits));
  return bits;
}

std::string CudaCombine(int dtype, Combine combine) {
  if (dtype == kBool && combine == Combine::kSum) combine = Combine::kMax;
  if (dtype == kBool && combine == Combine::kProd) combine = Combine::kMin;
  const bool is_half = dtype == kFloat16 || dtype == kBFloat16;
  const bool is_compared = combine == Combine::kMax || combine == Combine::kMin;
  const std::string element = kElements[static_cast<size_t>(dtype)];
  const std::string accumulator =
      is_compared && !is_half ? element : kAccumulators[static_cast<size_t>(dtype)];
  std::string text =
      "\ntypedef " + element + " Element;\ntypedef " + accumulator + " Accumulator;\n";
  text += dtype == kFloat16 ? kFloat16Text : is_half ? kBFloat16Text : kSameText;
  text += Replace(kCombineText, {{"combined", CombinedText(combine)}});
  const int64_t bytes = ElementBytes(dtype);
  if (bytes >= 4) return text + kEndText;
  return text + Replace(kSmallEndText, {{"mask", bytes == 1 ? "0xffu" : "0xffffu"},
                                        {"bits", std::to_string(8 * bytes)}});
}

}  // namespace tofu
