// The operators of MultiFetch on a GPU: what multifetch_ops.h does on CPUs, in the
// order of MXNet's stream.
//
// Handles and acknowledgements are on devices. A tile's address is known before the
// tile is computed, but the handle that holds it becomes ready for readers only when
// MXNet has waited for the stream that computes the tile
// (docs/design/0003-multifetch.md).
//
// Errors: CudaError and SpecError (kernels/gpu_fetch.h).
#ifndef TOFU_MXNET_MULTIFETCH_GPU_H_
#define TOFU_MXNET_MULTIFETCH_GPU_H_

#include <string>
#include <vector>

#include "multifetch_ops.h"

namespace tofu {

void PublishOnGpu(const OpArrays& arrays);
// For each of the specifications, `sources` has the arrays that hold the addresses of
// its remote tiles, then the local tiles.
void FetchOnGpu(const std::vector<std::string>& specs,
                const std::vector<std::vector<const void*>>& sources,
                const OpArrays& arrays);

}  // namespace tofu

#endif  // TOFU_MXNET_MULTIFETCH_GPU_H_
