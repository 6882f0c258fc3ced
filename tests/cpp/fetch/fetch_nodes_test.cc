#include "fetch/fetch_nodes.h"

#include <gtest/gtest.h>

namespace tofu {
namespace {

TEST(FetchNodes, AnAttributeMarksThoseThatReadDirectly) {
  Node fetch;
  EXPECT_FALSE(IsDirect(fetch));
  fetch.attrs[kDirectAttr] = "1";
  EXPECT_TRUE(IsDirect(fetch));
}

TEST(FetchNodes, AFetchAssemblesTheRegionsOfItsSpecifications) {
  Node fetch;
  fetch.attrs[kSpecAttr] = JoinSpecs({"dtype=0 shape=2 sources=4; pieces=0@1>0:2",
                                      "dtype=0 shape=3 sources=4; pieces=0@1>0:3"});
  const FetchBundle bundle = BundleOf(fetch);
  ASSERT_EQ(bundle.size(), 2u);
  EXPECT_EQ(bundle[1].shape, Extents{3});
}

}  // namespace
}  // namespace tofu
