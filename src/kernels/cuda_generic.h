// The kernel for every MultiFetch that has none of its own: it reads boxes, strides
// and sources from the device's memory, element by element. Its text depends on the
// element's type and the reduction alone.
//
// It is called as the kernels of cuda_source.h are, with one more argument behind
// theirs: the address of a copy of CudaKernel::boxes on the device.
//
// Input:      a specification that CheckSpec accepts.
// Errors:     SpecError for more sources than a kernel can be called with.
// Complexity: every element is computed by its own walk over the cell's loops.
#ifndef TOFU_KERNELS_CUDA_GENERIC_H_
#define TOFU_KERNELS_CUDA_GENERIC_H_

#include "kernels/cuda_source.h"

namespace tofu {

CudaKernel EmitGenericCuda(const MultiFetchSpec& spec);

}  // namespace tofu

#endif  // TOFU_KERNELS_CUDA_GENERIC_H_
