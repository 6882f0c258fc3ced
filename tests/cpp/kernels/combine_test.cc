#include "kernels/combine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/half.h"

namespace tofu {
namespace {

// All rows combined, element by element.
template <typename T>
std::vector<T> Combined(int dtype, Combine combine,
                        const std::vector<std::vector<T>>& rows) {
  std::vector<const char*> addresses;
  for (const std::vector<T>& row : rows) {
    addresses.push_back(reinterpret_cast<const char*>(row.data()));
  }
  std::vector<T> out(rows[0].size());
  FindCombine(dtype, combine)(out.data(), addresses.data(), static_cast<int>(rows.size()),
                              static_cast<int64_t>(out.size()));
  return out;
}

TEST(Combine, TakesAllTermsInTheirOrder) {
  const std::vector<std::vector<double>> rows = {{2, -1}, {3, 5}, {-4, 7}};
  EXPECT_EQ(Combined(1, Combine::kSum, rows), (std::vector<double>{1, 11}));
  EXPECT_EQ(Combined(1, Combine::kProd, rows), (std::vector<double>{-24, -35}));
  EXPECT_EQ(Combined(1, Combine::kMax, rows), (std::vector<double>{3, 7}));
  EXPECT_EQ(Combined(1, Combine::kMin, rows), (std::vector<double>{-4, -1}));
  const float large = 1e8F;
  EXPECT_EQ(Combined<float>(0, Combine::kSum, {{large}, {1}, {-large}})[0], 0)
      << "the first two are added first";
}

// Beside infinite numbers, and where exponentials would be infinite.
TEST(Combine, AddsExponentialsOfLogarithms) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::vector<double> found =
      Combined<double>(1, Combine::kLogSumExp,
                       {{0, -kInf, -kInf, kInf, 1e4}, {std::log(3.0), -kInf, 2, 1, 1e4}});
  EXPECT_DOUBLE_EQ(found[0], std::log(4.0));
  EXPECT_EQ(found[1], -kInf);
  EXPECT_EQ(found[2], 2);
  EXPECT_EQ(found[3], kInf);
  EXPECT_DOUBLE_EQ(found[4], 1e4 + std::log(2.0));
  EXPECT_TRUE(
      std::isnan(Combined<float>(0, Combine::kLogSumExp, {{std::nanf("")}, {1}})[0]));
}

// One element more than a block of the loop.
TEST(Combine, GoesOverBlocks) {
  for (const size_t count : {1023, 1024, 1025, 3000}) {
    std::vector<std::vector<int32_t>> rows(3, std::vector<int32_t>(count));
    std::vector<int32_t> expected(count);
    for (size_t i = 0; i < count; ++i) {
      for (size_t t = 0; t < rows.size(); ++t) {
        rows[t][i] = static_cast<int32_t>(i * (t + 1));
      }
      expected[i] = static_cast<int32_t>(i * 6);
    }
    EXPECT_EQ(Combined(4, Combine::kSum, rows), expected) << count;
  }
}

TEST(Combine, GoesOverBlocksOfHalfPrecision) {
  std::vector<std::vector<uint16_t>> rows(2);
  std::vector<uint16_t> expected;
  for (int i = 0; i < 1030; ++i) {
    const auto value = static_cast<float>(i % 100);
    rows[0].push_back(ToFloat16(value).bits);
    rows[1].push_back(ToFloat16(1).bits);
    expected.push_back(ToFloat16(value + 1).bits);
  }
  EXPECT_EQ(Combined(2, Combine::kSum, rows), expected);
}

TEST(Combine, SignedNumbersWrapAround) {
  EXPECT_EQ(Combined<int32_t>(4, Combine::kSum, {{2147483647}, {1}})[0], -2147483647 - 1);
  EXPECT_EQ(Combined<int8_t>(5, Combine::kProd, {{64}, {2}})[0], -128);
  EXPECT_EQ(Combined<int64_t>(6, Combine::kMax, {{-5}, {-7}})[0], -5);
}

TEST(Combine, UnsignedNumbersAreComparedAsSuch) {
  EXPECT_EQ(Combined<uint8_t>(3, Combine::kMax, {{200}, {100}})[0], 200);
  EXPECT_EQ(Combined<uint16_t>(9, Combine::kMin, {{50000}, {7}})[0], 7);
  EXPECT_EQ(Combined<uint64_t>(11, Combine::kMax, {{~uint64_t{0}}, {1}})[0],
            ~uint64_t{0});
}

TEST(Combine, KeepsNaNsAndCombinesBooleans) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float rows[2][2] = {{nan, 1}, {1, nan}};
  for (const Combine combine : {Combine::kMax, Combine::kMin}) {
    const char* addresses[] = {reinterpret_cast<const char*>(rows[0]),
                               reinterpret_cast<const char*>(rows[1])};
    float out[2];
    FindCombine(0, combine)(out, addresses, 2, 2);
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
  }
  const char bools[2][2] = {{1, 1}, {1, 0}};
  const char* addresses[] = {bools[0], bools[1]};
  char out[2];
  FindCombine(7, Combine::kSum)(out, addresses, 2, 2);
  EXPECT_EQ(out[0] + 2 * out[1], 3);
  FindCombine(7, Combine::kProd)(out, addresses, 2, 2);
  EXPECT_EQ(out[0] + 2 * out[1], 1);
}

template <typename T>
T Written(int dtype, double value) {
  T element;
  WriteElement(dtype, value, &element);
  return element;
}

TEST(Combine, WrittenValuesAreClamped) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Written<int8_t>(5, -kInfinity), -128);
  EXPECT_EQ(Written<int8_t>(5, 200), 127);
  EXPECT_EQ(Written<int8_t>(5, -3), -3);
  EXPECT_EQ(Written<uint8_t>(3, -1), 0);
  EXPECT_EQ(Written<int64_t>(6, kInfinity), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Written<float>(0, -kInfinity), -kInfinity);
  EXPECT_EQ(Written<uint8_t>(7, 0.5), 1) << "a boolean";
  EXPECT_EQ(Written<uint8_t>(7, 0), 0);
  EXPECT_EQ(ToFloat(Written<Float16>(2, 1.5)), 1.5F);
  EXPECT_EQ(ToFloat(Written<BFloat16>(12, 1.5)), 1.5F);
}

}  // namespace
}  // namespace tofu
