#include "kernels/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tofu {
namespace {

TEST(Half, IsReadAndWrittenExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 half{static_cast<uint16_t>(bits)};
    const float value = ToFloat(half);
    if (std::isnan(value)) {
      EXPECT_GT(bits & 0x7fffu, 0x7c00u);
      EXPECT_TRUE(std::isnan(ToFloat(ToFloat16(value))));
      continue;
    }
    EXPECT_EQ(ToFloat16(value).bits, bits);
    const int exponent = static_cast<int>((bits >> 10) & 31);
    const double fraction = static_cast<double>(bits & 1023u) / 1024;
    const double magnitude = exponent == 0    ? std::ldexp(fraction, -14)
                             : exponent == 31 ? std::numeric_limits<double>::infinity()
                                              : std::ldexp(1 + fraction, exponent - 15);
    EXPECT_EQ(value, bits & 0x8000u ? -magnitude : magnitude);
  }
}

TEST(Half, RoundsToNearestEven) {
  const float step = 1.0f / 1024;
  EXPECT_EQ(ToFloat(ToFloat16(1 + step / 2)), 1);
  EXPECT_EQ(ToFloat(ToFloat16(1 + step * 3 / 2)), 1 + step * 2);
  EXPECT_EQ(ToFloat(ToFloat16(1 + step * 0.51f)), 1 + step);
  EXPECT_EQ(ToFloat(ToFloat16(65519)), 65504);
  EXPECT_TRUE(std::isinf(ToFloat(ToFloat16(65520))));
  const float tiny = std::ldexp(1.0f, -24);
  EXPECT_EQ(ToFloat(ToFloat16(tiny * 0.5f)), 0);
  EXPECT_EQ(ToFloat(ToFloat16(tiny * 1.5f)), tiny * 2);
  EXPECT_EQ(ToFloat(ToBFloat16(1 + 1.0f / 256)), 1);
  EXPECT_EQ(ToFloat(ToBFloat16(1 + 3.0f / 256)), 1 + 4.0f / 256);
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(std::nanf("")))));
}

TEST(Half, OfTheUpperHalfOfAFloatIsReadAndWrittenExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 half{static_cast<uint16_t>(bits)};
    const float value = ToFloat(half);
    EXPECT_EQ(BitsOfFloat(value) >> 16, bits);
    if (!std::isnan(value)) {
      EXPECT_EQ(ToBFloat16(value).bits, bits);
    }
  }
}

}  // namespace
}  // namespace tofu
