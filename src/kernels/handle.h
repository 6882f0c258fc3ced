// Handles: the address of a tile, as a number that says whose tile it is. A reader opens
// a handle before it reads the tile, because MXNet does not notice every copy of a handle
// that fails, and what lies in memory instead would be read as an address.
//
// Bits 0 to 47 are the address, bits 48 to 57 the owner modulo 1,024, and bits 58 to 63 a
// check of both. So a number that is no handle of this owner's passes once in 65,536
// times, and a handle of another owner's never. Emitted kernels do the same
// (cuda_text.h).
//
// Errors: HandleError for an address of more than 48 bits.
#ifndef TOFU_KERNELS_HANDLE_H_
#define TOFU_KERNELS_HANDLE_H_

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tofu {

constexpr int kAddressBits = 48;
constexpr int kOwnerBits = 10;
constexpr uint64_t kAddressMask = (uint64_t{1} << kAddressBits) - 1;
// An odd number without a pattern: its product's highest bits depend on all others.
constexpr uint64_t kHandleFactor = 0x9e3779b97f4a7c15u;

class HandleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The handle of a tile that worker `owner` holds.
uint64_t SealHandle(const void* tile, int owner);

// The tile's address; null if `handle` is not of this owner's making.
const void* OpenHandle(uint64_t handle, int owner);

// The address of a handle and the tile's owner, in one number for a kernel.
uint64_t WithOwner(const void* handle, int owner);

// Describes the value that stands in for a handle of `owner`: "a null address", "an
// address of worker 3's" or "the number 0x..., which is no handle".
std::string DescribeHandle(uint64_t handle);

}  // namespace tofu

#endif  // TOFU_KERNELS_HANDLE_H_
