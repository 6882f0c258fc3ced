// Names of the operators that carry out a fetch, and of their attributes. Passes write
// them (passes/partition/emit_multifetch.h), MXNet's extension implements them
// (mxnet/multifetch_ops.h).
#ifndef TOFU_FETCH_NODE_NAMES_H_
#define TOFU_FETCH_NODE_NAMES_H_

namespace tofu {

constexpr char kPublishOp[] = "_tofu_publish";
constexpr char kMultiFetchOp[] = "_tofu_multifetch";
constexpr char kRetireOp[] = "_tofu_retire";

// kMultiFetchOp's attributes: the regions to assemble, their tiles (fetch_bundle.h),
// and the node's name for messages, which MXNet does not tell operators.
constexpr char kSpecAttr[] = "spec";
constexpr char kHandlesAttr[] = "handles";
constexpr char kLabelAttr[] = "label";
// The number of tiles, the first inputs of kPublishOp (default 1) and of kRetireOp.
constexpr char kNumTilesAttr[] = "num_tiles";
// The number of inputs of kRetireOp.
constexpr char kNumArgsAttr[] = "num_args";
// Marks kMultiFetchOp and kRetireOp, which read other workers' arrays themselves, so the
// executor puts no copies on their edges (mxnet/place_nodes.cc).
constexpr char kDirectAttr[] = "__direct__";

// The type of handles, acknowledgements and tokens: int64.
constexpr int kHandleDtype = 6;

}  // namespace tofu

#endif  // TOFU_FETCH_NODE_NAMES_H_
