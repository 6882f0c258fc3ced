// Names of operators, attributes and types in MXNet 1.9.1's graphs. The passes decide
// what a node does; this file knows how to write it for MXNet, including workarounds
// for MXNet's limits.
//
// Built into the passes' library, not into the extension that MXNet loads.
#ifndef TOFU_MXNET_DIALECT_DIALECT_H_
#define TOFU_MXNET_DIALECT_DIALECT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/box.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

// The group of the nodes on a worker.
Name WorkerGroup(int worker);

// Whether no operator leaves such a tensor in one of oneDNN's layouts on a CPU.
bool IsSurelyPlain(const Shape& shape, int dtype);

// The layout in which an operator leaves an output on a CPU: the plain one, whatever its
// inputs' layouts; perhaps one of oneDNN's; or at most one of its inputs' layouts.
// Convolutions leave their gradients of weight and bias in the plain layout, and products
// of matrices all tensors, as they see them as matrices.
enum class Layout { kPlain, kBlocked, kInputs };
Layout LayoutOf(const std::string& op, int output);

// Whether an operator may fail on a CPU if its first input is in one of oneDNN's layouts.
// The gradient of Concat reads parts of the channels there, which must begin at a block.
bool MustReadPlain(const std::string& op, const std::vector<Shape>& outputs,
                   const Shape& input);

// The most dimensions of a tensor that a fetch can read on another worker
// (remote_views.h).
constexpr size_t kMaxViewedRank = 4;

constexpr char kCopyOp[] = "_copy";
// The copy that an executor inserts on an edge between workers.
constexpr char kCrossDeviceCopyOp[] = "_CrossDeviceCopy";

// "(2, 3)", "(2,)" and "()".
std::string TupleText(const Shape& values);

// "float32" for type flag 0, and so on; UserError(kGraph) when unknown.
std::string DtypeName(int dtype);

// Operators of stock MXNet, without name and inputs. A slice is one node, or one for
// each dimension that is cut: on CPUs "slice" of float32 is oneDNN's, which divides by
// zero where a piece cuts through the blocks of a blocked layout, such as a
// convolution's; "slice_axis" always reads the plain layout.
bool SlicesByAxis(int dtype);
Node SliceNode(const Box& box);
Node SliceAxisNode(int dim, int64_t begin, int64_t end);
Node ConcatNode(int dim, size_t parts);
Node FillNode(const Shape& shape, int dtype, const std::string& value);
Node CopyNode();
// A copy in the plain layout.
Node PlainCopyNode();
Node CastNode(int dtype);

// One operator for all terms of a sum, or one for two terms of another reduction, but
// kLogSumExp.
Node SumNode(size_t terms);
Node CombineNode(Reducer reduce);

// Operators of kLogSumExp: a difference, ones where two tensors are equal, ones of a
// tensor's shape, a choice between two tensors, and the functions.
Node DifferenceNode();
Node EqualNode();
Node OnesLikeNode();
Node WhereNode();
Node ExpNode();
Node LogNode();

// The type as which tensors of `dtype` are concatenated: Concat does not know bool.
int ConcatDtype(int dtype);

}  // namespace tofu

#endif  // TOFU_MXNET_DIALECT_DIALECT_H_
