#include "graph/attrs.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace tofu {
namespace {

TEST(Attrs, ACopyChangesAlone) {
  Attrs first = {{"axis", "0"}};
  Attrs second = first;
  EXPECT_EQ(&first.map(), &second.map()) << "copies share their map";
  second["axis"] = "1";
  second["begin"] = "2";
  EXPECT_EQ(first, (Attrs{{"axis", "0"}}));
  EXPECT_EQ(second, (Attrs{{"axis", "1"}, {"begin", "2"}}));
  Attrs third = second;
  third.erase("axis");
  first = third;
  first["begin"] = "3";
  EXPECT_EQ(second.at("axis"), "1");
  EXPECT_EQ(third, (Attrs{{"begin", "2"}}));
  EXPECT_EQ(first, (Attrs{{"begin", "3"}}));
}

TEST(Attrs, HoldsNothingAtFirst) {
  Attrs attrs;
  EXPECT_TRUE(attrs.empty());
  EXPECT_EQ(attrs.count("axis"), 0u);
  EXPECT_EQ(attrs.find("axis"), attrs.end());
  EXPECT_THROW(attrs.at("axis"), std::out_of_range);
  attrs.erase("axis");
  EXPECT_EQ(attrs, Attrs());
  EXPECT_EQ(attrs["axis"], "");
  EXPECT_EQ(attrs.size(), 1u);
}

}  // namespace
}  // namespace tofu
