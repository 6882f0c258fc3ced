// The kernel for every MultiFetch without a kernel of its own: it reads boxes, strides
// and sources from the device's memory, element by element. Its text depends only on
// the element's type and the reduction.
//
// It is called like the kernels of cuda_source.h, with one more argument after theirs:
// the address of a copy of CudaKernel::boxes on the device.
//
// Input:      a specification that CheckSpec accepts.
// Errors:     SpecError for more sources than a kernel can be called with.
// Complexity: every element walks the cell's loops on its own.
#ifndef TOFU_KERNELS_CUDA_GENERIC_H_
#define TOFU_KERNELS_CUDA_GENERIC_H_

#include "kernels/cuda_source.h"

namespace tofu {

CudaKernel EmitGenericCuda(const MultiFetchSpec& spec);

}  // namespace tofu

#endif  // TOFU_KERNELS_CUDA_GENERIC_H_
