#include "kernels/handle.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace tofu {
namespace {

const void* At(uint64_t address) { return reinterpret_cast<const void*>(address); }

constexpr uint64_t kAddresses[] = {0x1000, 0x7f1234567890, 0x7f1234567891, kAddressMask};
constexpr int kOwners[] = {0, 1, 2, 15, 511, 1023};

TEST(Handle, OpensForItsOwnerOnly) {
  for (const uint64_t address : kAddresses) {
    for (const int owner : kOwners) {
      const uint64_t handle = SealHandle(At(address), owner);
      for (const int other : kOwners) {
        EXPECT_EQ(OpenHandle(handle, other), other == owner ? At(address) : nullptr)
            << address << " of " << owner << " for " << other;
      }
    }
  }
}

TEST(Handle, OwnersCountModulo1024) {
  EXPECT_EQ(OpenHandle(SealHandle(At(0x1000), 1030), 1030), At(0x1000));
  EXPECT_EQ(SealHandle(At(0x1000), 1030), SealHandle(At(0x1000), 6));
}

TEST(Handle, ANumberThatIsNoneHardlyEverPasses) {
  std::mt19937_64 random(3);
  constexpr int kTries = 1 << 20;
  int passed = 0;
  for (int i = 0; i < kTries; ++i) passed += OpenHandle(random(), 3) != nullptr ? 1 : 0;
  EXPECT_LT(passed, 4 * kTries / 65536);
}

// Values that memory holds if it held tensors, or addresses, before.
TEST(Handle, AddressesFloatsAndZeroDoNotPass) {
  for (const int owner : kOwners) {
    EXPECT_EQ(OpenHandle(0, owner), nullptr);
    EXPECT_EQ(OpenHandle(0x3f8000003f800000, owner), nullptr);
    EXPECT_EQ(OpenHandle(~uint64_t{0}, owner), nullptr);
  }
  // 0 is also what worker 0's null address seals to; it opens to null.
  EXPECT_EQ(SealHandle(nullptr, 0), 0u);
  EXPECT_EQ(OpenHandle(0x7f1234567890, 5), nullptr);
}

// A changed bit of the owner or of the check never passes; one of the address, once
// in 64.
TEST(Handle, AChangedBitHardlyEverPasses) {
  const uint64_t handle = SealHandle(At(0x7f1234567890), 5);
  int passed = 0;
  for (int bit = 0; bit < 64; ++bit) {
    passed += OpenHandle(handle ^ uint64_t{1} << bit, 5) != nullptr ? 1 : 0;
  }
  EXPECT_LT(passed, 4);
  for (int bit = kAddressBits; bit < 64; ++bit) {
    EXPECT_EQ(OpenHandle(handle ^ uint64_t{1} << bit, 5), nullptr) << bit;
  }
}

TEST(Handle, SaysWhatItIs) {
  EXPECT_EQ(DescribeHandle(0), "a null address");
  EXPECT_EQ(DescribeHandle(SealHandle(nullptr, 4)), "a null address");
  EXPECT_EQ(DescribeHandle(SealHandle(At(0x1000), 7)), "an address of worker 7's");
  EXPECT_EQ(DescribeHandle(0x3f8000003f800000),
            "the number 0x3f8000003f800000, which is no handle");
}

TEST(Handle, AnAddressOfTooManyBitsHasNone) {
  try {
    SealHandle(At(kAddressMask + 1), 2);
    FAIL() << "no error";
  } catch (const HandleError& error) {
    EXPECT_STREQ(error.what(),
                 "publishing a tile of worker 2: found the address 0x1000000000000, "
                 "expected one of 48 bits; use TOFU_FETCH=plain");
  }
}

}  // namespace
}  // namespace tofu
