// Name of the operator that carries out a fetch, and of its attributes. Passes write
// them (passes/partition/emit_multifetch.h), MXNet's extension implements them
// (mxnet/multifetch_ops.h).
#ifndef TOFU_FETCH_NODE_NAMES_H_
#define TOFU_FETCH_NODE_NAMES_H_

namespace tofu {

constexpr char kMultiFetchOp[] = "_tofu_multifetch";

// kMultiFetchOp's attributes: the regions to assemble (fetch_bundle.h), and the node's
// name for messages, which MXNet does not tell operators.
constexpr char kSpecAttr[] = "spec";
constexpr char kLabelAttr[] = "label";
// Marks kMultiFetchOp, which reads other workers' arrays itself, so the executor puts no
// copies on its edges (mxnet/place_nodes.cc).
constexpr char kDirectAttr[] = "__direct__";

}  // namespace tofu

#endif  // TOFU_FETCH_NODE_NAMES_H_
