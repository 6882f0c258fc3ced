// The operator that carries out fetches inside MXNet's executors:
//
//   _tofu_multifetch(tiles...) -> regions...
//       attributes `spec` (fetch/fetch_bundle.h), `label` (for messages)
//
// It reads tiles of other workers in place. On a CPU context they must be in the default
// layout (passes/partition/plain_tiles.h); MXNet copies a tile of the reader's own
// context that is in one of oneDNN's.
//
// Errors: std::exception with the text for MXNet.
#ifndef TOFU_MXNET_MULTIFETCH_OPS_H_
#define TOFU_MXNET_MULTIFETCH_OPS_H_

#include <string>
#include <vector>

#include "fetch/fetch_bundle.h"

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
  // Sets the shapes of the outputs.
  void (*infer_shapes)(const OpAttrs& attrs, OpShapes* shapes);
  void (*infer_dtypes)(const OpAttrs& attrs, int* inputs, int num_inputs, int* outputs);
  void (*compute)(const OpAttrs& attrs, const OpArrays& arrays);
};

// The operator with this index; null after the last.
const TofuOp* FindOp(int index);
const TofuOp* FindOp(void (*identity)());

}  // namespace tofu

#endif  // TOFU_MXNET_MULTIFETCH_OPS_H_
