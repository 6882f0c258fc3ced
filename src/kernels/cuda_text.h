// The parts of CUDA C++ that all emitted kernels have in common.
//
// CUDA 11.2 and 13 both compile the text. It includes no header and is C++ except for
// CUDA's keywords, so tests can also compile it for CPUs.
//
// Position: below cuda_source.h and cuda_generic.h.
#ifndef TOFU_KERNELS_CUDA_TEXT_H_
#define TOFU_KERNELS_CUDA_TEXT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fetch/multifetch_spec.h"

namespace tofu {

// Threads of a block, in every kernel.
constexpr int kBlockThreads = 256;

// `text` with every "$key" replaced by its value. If one key is a prefix of another,
// the longer must come first.
std::string Replace(std::string text,
                    const std::vector<std::pair<std::string, std::string>>& values);

// An integer as CUDA C++ text; `is_wide`: of 64 bits.
std::string CudaNumber(int64_t value, bool is_wide);

// The type `TofuSources`, `num_sources` addresses that a kernel is called with; loads,
// stores and fill values of 1 to 16 bytes; and the type of indices, of 64 bits when
// `is_wide`.
std::string CudaAccess(int num_sources, bool is_wide);

// The bits of the fill value, repeated as often as they fit.
int64_t CudaFill(const MultiFetchSpec& spec);

// `Element`, and how to combine elements: Begin, Add and End on vectors of them.
std::string CudaCombine(int dtype, Combine combine);

}  // namespace tofu

#endif  // TOFU_KERNELS_CUDA_TEXT_H_
