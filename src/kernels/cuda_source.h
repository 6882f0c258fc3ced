// CUDA C++ that carries out one MultiFetch on a GPU (paper section 6).
//
// A specification's kernel has the whole specification as constants: boxes, strides,
// sources, terms. Cells (multifetch.h) of one form, with equal loops, rows and terms,
// share a function. It moves rows in vectors of 16, 8 or 4 bytes if their strides
// allow, and in elements if an address turns out to be less aligned. Every form takes
// blocks in proportion to its size; a block's threads continue from row to row, so
// short rows share a block.
//
// The kernel is called with
//   region     where the result goes,
//   sources    TofuSources by value: the addresses of the sources, on any device.
//
// Input:      a specification that CheckSpec accepts.
// Output:     the same text for the same numbers on any machine; the text needs no
//             header and compiles as CUDA 11.2 and 13.
// Errors:     none; a specification with too many sources, forms or cells has no kernel
//             of its own and uses that of cuda_generic.h.
#ifndef TOFU_KERNELS_CUDA_SOURCE_H_
#define TOFU_KERNELS_CUDA_SOURCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fetch/multifetch_spec.h"

namespace tofu {

// The most sources of a kernel: all its arguments must fit into 4 KiB.
constexpr int kMaxCudaSources = 480;

// A kernel as text, and how to launch it.
struct CudaKernel {
  std::string name;    // extern "C"
  std::string source;  // CUDA C++
  int blocks = 1;
  int threads = 1;      // per block
  int num_sources = 1;  // addresses in TofuSources
  // Data that the generic kernel reads from the device's memory: its last argument.
  std::vector<int64_t> boxes;
};

// The kernel of one specification, if it has one.
std::optional<CudaKernel> EmitCuda(const MultiFetchSpec& spec);

}  // namespace tofu

#endif  // TOFU_KERNELS_CUDA_SOURCE_H_
