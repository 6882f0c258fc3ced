#include "mxnet/op_maps.h"

#include <gtest/gtest.h>

namespace tofu {
namespace {

// A map of three flags, stored like MXNet's; tests damage it.
RawAny g_any;

const void* GetMap(const std::string& name) {
  return name == "TIsBackward" ? &g_any : nullptr;
}

class OpMaps : public testing::Test {
 protected:
  OpMaps() {
    map_ = {"TIsBackward", {flags_, flags_ + 3, flags_ + 3}};
    g_any = {nullptr, &map_};
    mxnet_.get_attr_map = GetMap;
  }

  const RawOpMap<Flag>* Find(const char* name = "TIsBackward") {
    return FindOpMap<Flag>(mxnet_, reader_, name);
  }

  Flag flags_[3] = {{true, 0}, {false, 1}, {true, 10}};
  RawOpMap<Flag> map_;
  Mxnet mxnet_;
  const SafeReader reader_;
};

TEST_F(OpMaps, AreFoundByTheNameInTheirMemory) {
  EXPECT_EQ(Find(), &map_);
  EXPECT_EQ(Find("TIsForward"), nullptr);
  map_.name = "TIsLayerOpBackward";
  EXPECT_EQ(Find(), nullptr);
  map_.name = nullptr;
  EXPECT_EQ(Find(), nullptr);
}

TEST_F(OpMaps, WhoseSlotsAreNotThereAreNone) {
  g_any.content = nullptr;
  EXPECT_EQ(Find(), nullptr);
  g_any.content = &map_;
  map_.slots.begin = nullptr;
  map_.slots.end = map_.slots.begin + 3;
  EXPECT_EQ(Find(), nullptr);
}

TEST_F(OpMaps, WhoseSizeCannotBeAreNone) {
  map_.slots.end = reinterpret_cast<Flag*>(reinterpret_cast<char*>(flags_ + 3) - 1);
  EXPECT_EQ(Find(), nullptr) << "no whole number of slots";
  map_.slots.end = flags_ + kMaxOps + 1;
  EXPECT_EQ(Find(), nullptr);
  map_.slots.end = flags_;
  EXPECT_EQ(Find(), &map_) << "empty";
}

TEST_F(OpMaps, ASlotIsRegisteredAboveLevel0) {
  EXPECT_FALSE(IsRegistered(map_, 0));
  EXPECT_TRUE(IsRegistered(map_, 1));
  EXPECT_TRUE(IsRegistered(map_, 2));
  EXPECT_EQ(SlotOf(map_, 2), flags_ + 2);
  EXPECT_FALSE(IsRegistered(map_, 3)) << "behind the last";
  EXPECT_EQ(SlotOf(map_, 3), nullptr);
}

}  // namespace
}  // namespace tofu
