#include "kernels/handle.h"

#include <cstdio>

namespace tofu {
namespace {

constexpr uint64_t kOwners = uint64_t{1} << kOwnerBits;
constexpr int kCheckShift = kAddressBits + kOwnerBits;

std::string HexText(uint64_t number) {
  char text[19];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

// The owner and the check, in their places.
uint64_t Seal(uint64_t address, uint64_t owner) {
  const uint64_t body = address | owner << kAddressBits;
  return owner << kAddressBits | body * kHandleFactor >> kCheckShift << kCheckShift;
}

uint64_t Residue(int owner) { return static_cast<uint64_t>(owner) % kOwners; }

}  // namespace

uint64_t SealHandle(const void* tile, int owner) {
  const uint64_t address = reinterpret_cast<uintptr_t>(tile);
  if (address > kAddressMask) {
    throw HandleError("publishing a tile of worker " + std::to_string(owner) +
                      ": found the address " + HexText(address) + ", expected one of " +
                      std::to_string(kAddressBits) + " bits; use TOFU_FETCH=plain");
  }
  return address | Seal(address, Residue(owner));
}

const void* OpenHandle(uint64_t handle, int owner) {
  const uint64_t address = handle & kAddressMask;
  if ((handle & ~kAddressMask) != Seal(address, Residue(owner))) return nullptr;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): that is what a handle is for
  return reinterpret_cast<const void*>(address);
}

uint64_t WithOwner(const void* handle, int owner) {
  return reinterpret_cast<uintptr_t>(handle) | Residue(owner) << kAddressBits;
}

std::string DescribeHandle(uint64_t handle) {
  const uint64_t address = handle & kAddressMask;
  if (address == 0) return "a null address";
  const uint64_t owner = handle >> kAddressBits & (kOwners - 1);
  if ((handle & ~kAddressMask) == Seal(address, owner)) {
    return "an address of worker " + std::to_string(owner) + "'s";
  }
  return "the number " + HexText(handle) + ", which is no handle";
}

}  // namespace tofu
