// Record in which a device's kernels report a handle that is not its owner's
// (cuda_text.h). It lies in the host's memory, so the host sees it without calling the
// driver.
//
// A record holds one fault. If kernels report several before the host looks, one stays,
// or the call of one and the handle of another.
//
// Errors: CudaError if the driver has no memory.
#ifndef TOFU_KERNELS_FAULT_RECORD_H_
#define TOFU_KERNELS_FAULT_RECORD_H_

#include <cstdint>
#include <optional>

#include "kernels/cuda_driver.h"

namespace tofu {

struct HandleFault {
  uint32_t call;  // FetchCall::number
  int source;
  uint64_t handle;  // what the kernel found
};

class FaultRecord {
 public:
  FaultRecord(const CudaDriver& driver, CudaContext context);

  // For kernels.
  void* address() const { return words_; }

  // The fault, which is then forgotten.
  std::optional<HandleFault> Take();

 private:
  volatile uint32_t* reading() const { return words_; }

  uint32_t* words_;  // call, source, and both halves of the handle; never freed
};

}  // namespace tofu

#endif  // TOFU_KERNELS_FAULT_RECORD_H_
