// The operators of MultiFetch on a GPU: what multifetch_ops.h does on CPUs, in the
// order of MXNet's stream.
//
// Handles and acknowledgements are on devices. A tile's address is known before the
// tile is computed, but the handle that holds it becomes ready for readers only when
// MXNet has waited for the stream that computes the tile
// (docs/design/0003-multifetch.md).
//
// A kernel that finds a handle which is not its owner's leaves its region unwritten. The
// host learns of it from the next publication or fetch, which throws, or from
// TofuTakeFault, which Python calls before every step and when a script has read an
// array.
//
// Errors: CudaError and SpecError (kernels/gpu_fetch.h); HandleError (kernels/handle.h).
#ifndef TOFU_MXNET_MULTIFETCH_GPU_H_
#define TOFU_MXNET_MULTIFETCH_GPU_H_

#include <string>
#include <vector>

#include "multifetch_ops.h"

namespace tofu {

void PublishOnGpu(int owner, const OpArrays& arrays);

// Sources of one region: the arrays that hold the handles of its remote tiles, with
// their owners, then the local tiles.
struct RegionSources {
  std::vector<const void*> arrays;
  std::vector<int> owners;
};

// A region for each of the specifications.
void FetchOnGpu(const OpAttrs& attrs, const std::vector<std::string>& specs,
                const std::vector<RegionSources>& sources, const OpArrays& arrays);

}  // namespace tofu

#endif  // TOFU_MXNET_MULTIFETCH_GPU_H_
