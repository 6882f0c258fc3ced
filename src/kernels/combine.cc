#include "kernels/combine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/half.h"

namespace tofu {
namespace {

// This many elements stay in the first-level cache while the terms pass over them.
constexpr int64_t kBlock = 1024;

constexpr int kFloat16 = 2;
constexpr int kBool = 7;
constexpr int kBFloat16 = 12;

struct SumOp {
  template <typename T>
  static T Apply(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct ProdOp {
  template <typename T>
  static T Apply(T a, T b) {
    return static_cast<T>(a * b);
  }
};
// Comparing a number with itself is false only for NaN.
struct MaxOp {
  template <typename T>
  static T Apply(T a, T b) {
    return (a > b) | (a != a) ? a : b;
  }
};
struct MinOp {
  template <typename T>
  static T Apply(T a, T b) {
    return (a < b) | (a != a) ? a : b;
  }
};

// Equal numbers first: the difference of two infinite ones is none.
struct LogSumExpOp {
  template <typename T>
  static T Apply(T a, T b) {
    using Float = std::conditional_t<std::is_same_v<T, float>, float, double>;
    const auto high = static_cast<Float>(a > b ? a : b);
    const auto low = static_cast<Float>(a > b ? b : a);
    return static_cast<T>(high + std::log1p(a == b ? Float{1} : std::exp(low - high)));
  }
};

// Signed overflow wraps around, as in MXNet's own loops.
template <typename T, bool = std::is_integral_v<T>>
struct Arithmetic {
  using Type = T;
};
template <typename T>
struct Arithmetic<T, true> {
  using Type = std::conditional_t<sizeof(T) < 4, uint32_t, std::make_unsigned_t<T>>;
};

template <typename Op, typename T>
T Apply(T a, T b) {
  if constexpr (std::is_same_v<Op, SumOp> || std::is_same_v<Op, ProdOp>) {
    using U = typename Arithmetic<T>::Type;
    return static_cast<T>(Op::Apply(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return Op::Apply(a, b);
  }
}

template <typename T, typename Op>
void CombineOf(void* to, const char* const* rows, int num_terms, int64_t count) {
  T* __restrict out = static_cast<T*>(to);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    const T* first = reinterpret_cast<const T*>(rows[0]);
    const T* second = reinterpret_cast<const T*>(rows[1]);
    for (int64_t i = begin; i < end; ++i) out[i] = Apply<Op>(first[i], second[i]);
    for (int term = 2; term < num_terms; ++term) {
      const T* next = reinterpret_cast<const T*>(rows[term]);
      for (int64_t i = begin; i < end; ++i) out[i] = Apply<Op>(out[i], next[i]);
    }
  }
}

void StoreHalf(float value, Float16* to) { *to = ToFloat16(value); }
void StoreHalf(float value, BFloat16* to) { *to = ToBFloat16(value); }

template <typename Half, typename Op>
void CombineHalf(void* to, const char* const* rows, int num_terms, int64_t count) {
  Half* __restrict out = static_cast<Half*>(to);
  float sum[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    const Half* first = reinterpret_cast<const Half*>(rows[0]) + begin;
    for (int64_t i = 0; i < size; ++i) sum[i] = ToFloat(first[i]);
    for (int term = 1; term < num_terms; ++term) {
      const Half* next = reinterpret_cast<const Half*>(rows[term]) + begin;
      for (int64_t i = 0; i < size; ++i) sum[i] = Op::Apply(sum[i], ToFloat(next[i]));
    }
    for (int64_t i = 0; i < size; ++i) StoreHalf(sum[i], out + begin + i);
  }
}

template <typename T, typename Op>
constexpr CombineRows Loop() {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return CombineHalf<T, Op>;
  } else {
    return CombineOf<T, Op>;
  }
}

template <typename T>
CombineRows LoopFor(Combine combine) {
  switch (combine) {
    case Combine::kMax:
      return Loop<T, MaxOp>();
    case Combine::kMin:
      return Loop<T, MinOp>();
    case Combine::kProd:
      return Loop<T, ProdOp>();
    case Combine::kLogSumExp:
      return Loop<T, LogSumExpOp>();
    case Combine::kSum:
      break;
  }
  return Loop<T, SumOp>();
}

// Calls `visit` with a value of the type that the flag denotes.
template <typename Visitor>
auto Visit(int dtype, const Visitor& visit) {
  switch (dtype) {
    case 1:
      return visit(double{});
    case kFloat16:
      return visit(Float16{});
    case 3:
    case kBool:
      return visit(uint8_t{});
    case 4:
      return visit(int32_t{});
    case 5:
      return visit(int8_t{});
    case 6:
      return visit(int64_t{});
    case 8:
      return visit(int16_t{});
    case 9:
      return visit(uint16_t{});
    case 10:
      return visit(uint32_t{});
    case 11:
      return visit(uint64_t{});
    case kBFloat16:
      return visit(BFloat16{});
    default:
      return visit(float{});
  }
}

template <typename T>
T Clamped(double value) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else {
    using Limits = std::numeric_limits<T>;
    if (!(value > static_cast<double>(Limits::lowest()))) return Limits::lowest();
    if (value >= static_cast<double>(Limits::max())) return Limits::max();
    return static_cast<T>(value);
  }
}

}  // namespace

CombineRows FindCombine(int dtype, Combine combine) {
  if (dtype == kBool && combine == Combine::kSum) combine = Combine::kMax;
  if (dtype == kBool && combine == Combine::kProd) combine = Combine::kMin;
  return Visit(dtype, [&](auto type) { return LoopFor<decltype(type)>(combine); });
}

void WriteElement(int dtype, double value, void* to) {
  Visit(dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, Float16>) {
      type = ToFloat16(static_cast<float>(value));
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      type = ToBFloat16(static_cast<float>(value));
    } else {
      type = Clamped<T>(dtype == kBool ? static_cast<double>(value != 0) : value);
    }
    std::memcpy(to, &type, sizeof(type));
  });
}

}  // namespace tofu
