// Which of MXNet's operators write to their inputs, beside those that update weights.
#ifndef TOFU_MXNET_WRITTEN_INPUTS_H_
#define TOFU_MXNET_WRITTEN_INPUTS_H_

#include <string>

namespace tofu {

// An executor refuses to copy what such an operator writes from another worker.
inline bool MayWriteInputs(const std::string& op) {
  return op.find("BatchNorm") != std::string::npos;  // running statistics
}

}  // namespace tofu

#endif  // TOFU_MXNET_WRITTEN_INPUTS_H_
