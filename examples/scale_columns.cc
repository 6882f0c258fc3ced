// An operator of one's own in C++ for mx.library: scale_columns(x, s)[i, j] = x[i, j] *
// s[j], with its gradient. Float32 and float64, on CPUs.
#include <mxnet/lib_api.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

using mxnet::ext::MXReturnValue;
using mxnet::ext::MXTensor;
using mxnet::ext::OpResource;
using Attributes = std::unordered_map<std::string, std::string>;
using Tensors = std::vector<MXTensor>;
using Types = std::vector<int>;
using Shapes = std::vector<std::vector<unsigned int>>;

MXReturnValue CountTensors(const Attributes&, int* num_inputs, int* num_outputs) {
  *num_inputs = 2;
  *num_outputs = 1;
  return MXReturnValue::MX_SUCCESS;
}

MXReturnValue InferTypes(const Attributes&, Types* inputs, Types* outputs) {
  const int type = (*inputs)[0];
  if (type != mxnet::ext::kFloat32 && type != mxnet::ext::kFloat64) {
    return MXReturnValue::MX_FAIL;
  }
  (*outputs)[0] = (*inputs)[1] = type;
  return MXReturnValue::MX_SUCCESS;
}

MXReturnValue InferShapes(const Attributes&, Shapes* inputs, Shapes* outputs) {
  const std::vector<unsigned int>& x = (*inputs)[0];
  if (x.size() != 2) return MXReturnValue::MX_FAIL;
  (*inputs)[1] = {x[1]};
  (*outputs)[0] = x;
  return MXReturnValue::MX_SUCCESS;
}

template <typename T>
void Scale(Tensors* inputs, Tensors* outputs) {
  const T* x = (*inputs)[0].data<T>();
  const T* s = (*inputs)[1].data<T>();
  T* out = (*outputs)[0].data<T>();
  const int64_t rows = (*inputs)[0].shape[0];
  const int64_t columns = (*inputs)[0].shape[1];
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      out[i * columns + j] = x[i * columns + j] * s[j];
    }
  }
}

// Reads the gradient of the output, the inputs and the output; writes those of the
// inputs.
template <typename T>
void Differentiate(Tensors* inputs, Tensors* outputs) {
  const T* grad = (*inputs)[0].data<T>();
  const T* x = (*inputs)[1].data<T>();
  const T* s = (*inputs)[2].data<T>();
  T* grad_x = (*outputs)[0].data<T>();
  T* grad_s = (*outputs)[1].data<T>();
  const int64_t rows = (*inputs)[1].shape[0];
  const int64_t columns = (*inputs)[1].shape[1];
  for (int64_t j = 0; j < columns; ++j) grad_s[j] = 0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      grad_x[i * columns + j] = grad[i * columns + j] * s[j];
      grad_s[j] += grad[i * columns + j] * x[i * columns + j];
    }
  }
}

MXReturnValue Forward(const Attributes&, Tensors* inputs, Tensors* outputs,
                      const OpResource&) {
  const bool is_single = (*inputs)[0].dtype == mxnet::ext::kFloat32;
  (is_single ? Scale<float> : Scale<double>)(inputs, outputs);
  return MXReturnValue::MX_SUCCESS;
}

MXReturnValue Backward(const Attributes&, Tensors* inputs, Tensors* outputs,
                       const OpResource&) {
  const bool is_single = (*inputs)[0].dtype == mxnet::ext::kFloat32;
  (is_single ? Differentiate<float> : Differentiate<double>)(inputs, outputs);
  return MXReturnValue::MX_SUCCESS;
}

REGISTER_OP(scale_columns)
    .setForward(Forward, "cpu")
    .setBackward(Backward, "cpu")
    .setParseAttrs(CountTensors)
    .setInferType(InferTypes)
    .setInferShape(InferShapes);

MXReturnValue initialize(int version) {
  return version >= 10700 ? MXReturnValue::MX_SUCCESS : MXReturnValue::MX_FAIL;
}
