#include "kernels/fault_record.h"

#include <algorithm>

namespace tofu {
namespace {

constexpr int kWords = 4;

}  // namespace

FaultRecord::FaultRecord(const CudaDriver& driver, CudaContext context) {
  const CudaDriver::Current current(driver, context);
  words_ = static_cast<uint32_t*>(driver.AllocateOnHost(kWords * sizeof(uint32_t)));
  std::fill_n(words_, kWords, 0);
}

std::optional<HandleFault> FaultRecord::Take() {
  const uint32_t call = reading()[0];
  if (call == 0) return {};
  const uint64_t high = reading()[3];
  const HandleFault fault{call, static_cast<int>(reading()[1]),
                          high << 32 | reading()[2]};
  reading()[0] = 0;
  return fault;
}

}  // namespace tofu
