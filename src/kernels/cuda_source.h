// CUDA C++ that carries out one MultiFetch on a GPU (paper section 6).
//
// The kernel of a specification has everything that the specification says as
// constants: boxes, strides, sources, terms. Cells (multifetch.h) of one form, that
// is with equal loops, rows and terms, share a function, which moves rows in vectors
// of 16, 8 or 4 bytes as far as their strides allow, and in elements where an address
// turns out to be aligned to less. Every form takes blocks in proportion to its size;
// a block's threads go on from row to row, so that short rows share a block.
//
// The kernel is called with
//   region     where the result goes,
//   done       null, or a number of 64 bits that it sets to 0,
//   sources    TofuSources by value: the addresses of the sources, for the first
//              `num_remote` those of numbers that hold their addresses.
//
// Input:      a specification that CheckSpec accepts.
// Output:     the same text for the same numbers, whatever the machine; the text needs
//             no header and compiles as CUDA 11.2 and 13.
// Errors:     none; a specification with too many sources, forms or cells has no kernel
//             of its own, and cuda_generic.h serves it.
#ifndef TOFU_KERNELS_CUDA_SOURCE_H_
#define TOFU_KERNELS_CUDA_SOURCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/multifetch_spec.h"

namespace tofu {

// The most sources of a kernel: all that it is called with must fit into 4 KiB.
constexpr int kMaxCudaSources = 480;

// A kernel as text, and how to launch it.
struct CudaKernel {
  std::string name;    // extern "C"
  std::string source;  // CUDA C++
  int blocks = 1;
  int threads = 1;      // per block
  int num_sources = 1;  // addresses in TofuSources
  // What the generic kernel reads from the device's memory, its last argument.
  std::vector<int64_t> boxes;
};

// The kernel of one specification, or none.
std::optional<CudaKernel> EmitCuda(const MultiFetchSpec& spec);

}  // namespace tofu

#endif  // TOFU_KERNELS_CUDA_SOURCE_H_
