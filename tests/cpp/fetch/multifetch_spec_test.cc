#include "fetch/multifetch_spec.h"

#include <gtest/gtest.h>

#include "support/expect_text.h"

namespace tofu {
namespace {

std::string ErrorOf(const std::string& text) {
  try {
    ReadSpec(text);
  } catch (const SpecError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MultiFetchSpec, IsReadAsItWasWritten) {
  for (const char* text : {
           "dtype=0 shape=2,2 sources=3,4; pieces=0@1,2>0,0:2,2",
           "dtype=2 shape= sources=;; pieces=0@>:#0;1@>:#1 terms=2 reduce=max",
           "dtype=1 shape=3 sources=2; pieces=-@>0:1;0@0>1:2 fill=-inf",
           "dtype=6 shape=0,2 sources= pieces=",
       }) {
    EXPECT_EQ(WriteSpec(ReadSpec(text)), text);
  }
}

TEST(MultiFetchSpec, SaysWhatIsWrong) {
  ExpectText(ErrorOf("shape=2"), "expected dtype=...");
  ExpectText(ErrorOf("dtype=15 shape=1 sources=1; pieces=0@0>0:1"),
             "found dtype=15, expected a type flag, 0 to 14");
  ExpectText(ErrorOf("dtype=0 shape=x sources= pieces="),
             "found \"x\", expected a number that is not negative");
  ExpectText(ErrorOf("dtype=0 shape=2 sources=1; pieces=0>0:1"),
             "expected source@from>to:extents");
  ExpectText(ErrorOf("dtype=0 shape=2 sources=1; pieces=0@0>0:2"),
             "expected a box inside its source 1");
  ExpectText(ErrorOf("dtype=0 shape=2 sources=9; pieces=0@0>1:2"),
             "expected a box inside the region 2");
  ExpectText(ErrorOf("dtype=0 shape=2 sources=9; pieces=1@0>0:2"),
             "expected a source below 1");
  ExpectText(ErrorOf("dtype=0 shape=2 sources=9; pieces=0@0>0:1"),
             "found a term of 1 elements, expected the region's 2");
  ExpectText(ErrorOf("dtype=0 shape=2 sources=9; pieces=0@0>0:1;0@0>0:1"),
             "two pieces of one term that overlap");
  ExpectText(ErrorOf("dtype=0 shape=1 sources=9; pieces=0@0>0:1 reduce=mean"),
             "expected sum, max, min or prod");
}

// Each of these changes alone makes a good specification bad.
TEST(MultiFetchSpec, EveryNumberIsChecked) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text =
        "dtype=0 shape=2,4 sources=2,4;3,4; "
        "pieces=0@0,0>0,0:2,4#0;1@1,0>0,0:2,4#1 terms=2 reduce=sum";
    if (!from.empty()) text.replace(text.find(from), from.size(), to);
    return ErrorOf(text);
  };
  EXPECT_EQ(with("", ""), "no error");
  EXPECT_NE(with("1@1,0", "1@2,0"), "no error") << "rows 2 and 3 of 3";
  EXPECT_NE(with("1@1,0", "1@1,1"), "no error") << "columns 1 to 5 of 4";
  EXPECT_NE(with(">0,0:2,4#1", ">0,0:2,3#1"), "no error") << "a term that is not whole";
  EXPECT_NE(with("#1", "#2"), "no error") << "term 2 of 2";
  EXPECT_NE(with("#1", "#0"), "no error") << "term 0 twice, term 1 never";
  EXPECT_NE(with("terms=2", "terms=3"), "no error");
  EXPECT_NE(with("terms=2", "terms=0"), "no error");
  EXPECT_NE(with("1@1,0", "2@1,0"), "no error") << "source 2 of 2";
  EXPECT_NE(with("1@1,0", "1@1"), "no error") << "rank 1 of 2";
}

TEST(MultiFetchSpec, KnowsTheBytesOfEveryDtype) {
  const int64_t bytes[] = {4, 8, 2, 1, 4, 1, 8, 1, 2, 2, 4, 8, 2, 8, 16};
  for (int dtype = 0; dtype < 15; ++dtype) EXPECT_EQ(ElementBytes(dtype), bytes[dtype]);
  EXPECT_THROW(ElementBytes(15), SpecError);
  EXPECT_THROW(ElementBytes(-1), SpecError);
}

TEST(MultiFetchSpec, StridesAreRowMajor) {
  EXPECT_EQ(DenseStrides({2, 3, 4}), (Extents{12, 4, 1}));
  EXPECT_EQ(DenseStrides({}), Extents());
}

}  // namespace
}  // namespace tofu
