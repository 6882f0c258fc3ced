// The operators that carry out a fetch inside MXNet's executors
// (passes/partition/emit_multifetch.h says how they work together):
//
//   _tofu_publish(tiles...) -> handle         the tiles' addresses, sealed, in int64
//       attribute `num_tiles`, by default 1
//   _tofu_multifetch(handles..., tiles...) -> regions..., acknowledgement
//       attributes `spec`, `handles` (fetch/fetch_bundle.h), `label` (for messages)
//   _tofu_retire(tiles..., handles..., acknowledgements...) -> token
//       attributes `num_args`, `num_tiles`
//
// MXNet hands every input over in the default layout. A tile in one of oneDNN's
// layouts is copied; MXNet keeps the copy until the operator runs again, so its
// address stays valid as long as the handle.
//
// A fetch reads no tile whose handle is not of the owner's making (kernels/handle.h).
//
// Errors: std::exception with the text for MXNet.
#ifndef TOFU_MXNET_MULTIFETCH_OPS_H_
#define TOFU_MXNET_MULTIFETCH_OPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fetch/multifetch_spec.h"

namespace tofu {

// Attributes of a node, as MXNet's ABI passes them.
struct OpAttrs {
  const char* const* keys;
  const char* const* values;
  int count;

  // The value of a key. If there is none, Find returns null and Get throws.
  const char* Find(const char* key) const;
  const char* Get(const char* key) const;
};

// "MultiFetch LABEL on worker 2": a fetch, for messages.
std::string ReaderText(const OpAttrs& attrs);

// Why a fetch refuses what it found instead of a handle of `owner`.
std::string RefusalText(const std::string& reader, uint64_t handle, int owner);

// The arrays of one call.
struct OpArrays {
  void* const* inputs;
  int num_inputs;
  void* const* outputs;
  int num_outputs;
  bool on_gpu;
  int device;
  void* stream;  // of CUDA, on a GPU
};

struct OpShapes {
  std::vector<Extents> inputs;
  std::vector<Extents> outputs;
};

// The description of an operator for the extension's entry points.
struct TofuOp {
  const char* name;
  void (*identity)();  // its address is the operator's key in MXNet's ABI
  void (*parse)(const OpAttrs& attrs, int* num_inputs, int* num_outputs);
  // Sets the shapes of the outputs from those of the inputs, and may correct the latter.
  void (*infer_shapes)(const OpAttrs& attrs, OpShapes* shapes);
  void (*infer_dtypes)(const OpAttrs& attrs, int* inputs, int num_inputs, int* outputs);
  void (*compute)(const OpAttrs& attrs, const OpArrays& arrays);
};

// The operator with this index; null after the last.
const TofuOp* FindOp(int index);
const TofuOp* FindOp(void (*identity)());

// A retirement on a CPU. It needs no array: nothing reads its token's value.
void RetireUnseen();

}  // namespace tofu

#endif  // TOFU_MXNET_MULTIFETCH_OPS_H_
