#include "fetch/fetch_bundle.h"

#include <gtest/gtest.h>

#include <string>

namespace tofu {
namespace {

constexpr char kRemote[] = "dtype=0 shape=2 remote=1 sources=2; pieces=0@0>0:2";
constexpr char kMixed[] = "dtype=1 shape=4 remote=1 sources=2;2; pieces=0@0>0:2;1@0>2:2";

std::string Two() { return JoinSpecs({kRemote, kMixed}); }

std::string Complaint(const std::string& specs, const std::string& handles) {
  try {
    ReadBundle(specs, handles);
  } catch (const SpecError& error) {
    return error.what();
  }
  return "";
}

TEST(FetchBundle, ReadsWhatItWrites) {
  const FetchBundle bundle = ReadBundle(Two(), "0:0@3 0:1@4");
  ASSERT_EQ(bundle.specs.size(), 2u);
  EXPECT_EQ(bundle.specs[1].dtype, 1);
  EXPECT_EQ(bundle.num_handles(), 1) << "both addresses come in one input";
  EXPECT_EQ(bundle.num_inputs(), 2) << "and the local tile";
  EXPECT_EQ(bundle.remote[1].index, 1);
  EXPECT_EQ(bundle.remote[1].owner, 4);
  EXPECT_EQ(WriteSpec(bundle.specs[0]) + "|" + WriteSpec(bundle.specs[1]), Two());
  EXPECT_EQ(WriteHandles(bundle.remote), "0:0@3 0:1@4");
}

TEST(FetchBundle, WithoutHandlesEverySourceHasAnInputOfItsOwn) {
  const FetchBundle bundle = ReadBundle(Two(), "");
  EXPECT_EQ(bundle.num_handles(), 2);
  EXPECT_EQ(bundle.num_inputs(), 3);
  EXPECT_EQ(bundle.remote[1].input, 1);
  EXPECT_EQ(WriteHandles(bundle.remote), "0:0@0 1:0@0");
  EXPECT_EQ(WriteHandles({}), "") << "all tiles are local";
}

TEST(FetchBundle, SaysWhatIsWrong) {
  EXPECT_NE(Complaint(Two(), "0:0@0").find("found 1, expected one for each of the 2"),
            std::string::npos);
  for (const char* bad : {"0:x@0 0:1@0", "0 0:1@0", "-1:0@0 0:1@0", "0:0@0;0:1@0",
                          "0:-1@0 0:1@0", "0:0 0:1@0", "0:0@-1 0:1@0", "0:0@x 0:1@0"}) {
    EXPECT_NE(Complaint(Two(), bad).find("expected input:index@owner"), std::string::npos)
        << bad;
  }
  EXPECT_NE(Complaint(Two() + "|", ""), "") << "an empty specification";
}

}  // namespace
}  // namespace tofu
