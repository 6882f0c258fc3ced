// MultiFetch on a GPU: what multifetch_ops.h does on CPUs, in the order of MXNet's
// stream. MXNet has waited for the streams that compute the tiles before it runs a fetch
// (docs/design/0003-multifetch.md).
//
// Errors: CudaError and SpecError (kernels/gpu_fetch.h).
#ifndef TOFU_MXNET_MULTIFETCH_GPU_H_
#define TOFU_MXNET_MULTIFETCH_GPU_H_

#include <string>
#include <vector>

#include "multifetch_ops.h"

namespace tofu {

// A region for each of the specifications, of which WriteSpec wrote the texts.
void FetchOnGpu(const std::vector<std::string>& specs, const FetchBundle& bundle,
                const OpArrays& arrays);

}  // namespace tofu

#endif  // TOFU_MXNET_MULTIFETCH_GPU_H_
