// The parts of CUDA C++ that all emitted kernels have in common.
//
// The text keeps to what CUDA 11.2 and 13 both compile, includes no header, and is
// C++ but for the words of CUDA, so that tests compile it for CPUs too.
//
// Position: beneath cuda_source.h and cuda_generic.h.
#ifndef TOFU_KERNELS_CUDA_TEXT_H_
#define TOFU_KERNELS_CUDA_TEXT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/multifetch_spec.h"

namespace tofu {

// Threads of a block, in every kernel.
constexpr int kBlockThreads = 256;

// `text` with every "$key" replaced by its value. Of two keys that begin alike the
// longer must come first.
std::string Replace(std::string text,
                    const std::vector<std::pair<std::string, std::string>>& values);

// A whole number as text of CUDA C++; `is_wide`: of 64 bits.
std::string CudaNumber(int64_t value, bool is_wide);

// The type `TofuSources`, `num_sources` addresses that a kernel is called with;
// `Tile`; loads, stores and fill values of 1 to 16 bytes; and the type of indices, of 64
// bits when `is_wide`.
std::string CudaAccess(int num_sources, bool is_wide);

// The bits of the fill value, as often as they fit.
int64_t CudaFill(const MultiFetchSpec& spec);

// `Element`, and how elements are combined: Begin, Add and End on vectors of them.
std::string CudaCombine(int dtype, Combine combine);

}  // namespace tofu

#endif  // TOFU_KERNELS_CUDA_TEXT_H_
