#include "fetch/fetch_bundle.h"

#include <gtest/gtest.h>

#include <string>

namespace tofu {
namespace {

constexpr char kOne[] = "dtype=0 shape=2 sources=2; pieces=0@0>0:2";
constexpr char kOther[] = "dtype=1 shape=4 sources=2;2; pieces=0@0>0:2;1@0>2:2";

TEST(FetchBundle, ReadsWhatItWrites) {
  const std::string text = JoinSpecs({kOne, kOther});
  const FetchBundle bundle = ReadBundle(text);
  ASSERT_EQ(bundle.size(), 2u);
  EXPECT_EQ(bundle[1].dtype, 1);
  EXPECT_EQ(NumInputs(bundle), 3) << "the tiles of all regions";
  EXPECT_EQ(WriteSpec(bundle[0]) + "|" + WriteSpec(bundle[1]), text);
}

TEST(FetchBundle, AnEmptySpecificationIsRefused) {
  EXPECT_THROW(ReadBundle(""), SpecError);
  EXPECT_THROW(ReadBundle(std::string(kOne) + "|"), SpecError);
}

}  // namespace
}  // namespace tofu
