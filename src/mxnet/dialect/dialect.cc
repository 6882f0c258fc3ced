#include "mxnet/dialect/dialect.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include "base/error.h"
#include "fetch/node_names.h"

namespace tofu {
namespace {

constexpr int kFloat32 = 0;
constexpr int kUint8 = 3;
constexpr int kInt8 = 5;
constexpr int kBool = 7;
constexpr int kBfloat16 = 12;

// By type flag.
constexpr std::array<const char*, 15> kDtypeNames = {
    "float32", "float64", "float16",  "uint8",     "int32",
    "int8",    "int64",   "bool",     "int16",     "uint16",
    "uint32",  "uint64",  "bfloat16", "complex64", "complex128"};

Node Operator(const char* op, Attrs attrs) {
  Node node;
  node.op = op;
  node.attrs = std::move(attrs);
  return node;
}

}  // namespace

Name WorkerGroup(int worker) { return Name("worker" + std::to_string(worker)); }

std::string TupleText(const Shape& values) {
  std::string text = "(";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(values[i]);
  }
  return text + (values.size() == 1 ? ",)" : ")");
}

std::string DtypeName(int dtype) {
  TOFU_CHECK_USER(dtype >= 0 && dtype < static_cast<int>(kDtypeNames.size()),
                  Blame::kGraph)
      << "dtype " << dtype << " is not a type flag of MXNet, expected 0 to "
      << kDtypeNames.size() - 1;
  return kDtypeNames[dtype];
}

bool SlicesByAxis(int dtype) { return dtype == kFloat32; }

bool IsSurelyPlain(const Shape& shape, int dtype) {
  constexpr size_t kMinBlockedRank = 3;  // vectors and matrices are always plain
  constexpr int kBlockedDtypes[] = {kFloat32, kUint8, kInt8, kBfloat16};
  return shape.size() < kMinBlockedRank ||
         std::find(std::begin(kBlockedDtypes), std::end(kBlockedDtypes), dtype) ==
             std::end(kBlockedDtypes);
}

Layout LayoutOf(const std::string& op, int output) {
  if (op == "FullyConnected" || op == "_backward_FullyConnected") return Layout::kPlain;
  if (op == "_backward_Convolution" && output > 0) return Layout::kPlain;
  // Also of their gradients, and of quantized and fused kinds.
  const char* const kinds[] = {"onvolution", "ooling", "mkldnn", "quantize"};
  const bool is_blocked =
      std::any_of(std::begin(kinds), std::end(kinds),
                  [&](const char* kind) { return op.find(kind) != std::string::npos; });
  return is_blocked ? Layout::kBlocked : Layout::kInputs;
}

bool MustReadPlain(const std::string& op, const std::vector<Shape>& outputs,
                   const Shape& input) {
  constexpr int64_t kMostChannelsOfABlock = 16;
  if (op != "_backward_Concat" || input.size() < 2) return false;
  int64_t begin = 0;
  bool splits_block = false;
  for (const Shape& output : outputs) {
    splits_block = splits_block || begin % kMostChannelsOfABlock != 0;
    begin += output[1];
  }
  return splits_block && begin == input[1];  // else it is along another dimension
}

Node SliceNode(const Box& box) {
  return Operator("slice",
                  {{"begin", TupleText(box.begin)}, {"end", TupleText(box.end)}});
}

Node SliceAxisNode(int dim, int64_t begin, int64_t end) {
  return Operator("slice_axis", {{"axis", std::to_string(dim)},
                                 {"begin", std::to_string(begin)},
                                 {"end", std::to_string(end)}});
}

Node ConcatNode(int dim, size_t parts) {
  return Operator("Concat",
                  {{"dim", std::to_string(dim)}, {"num_args", std::to_string(parts)}});
}

Node FillNode(const Shape& shape, int dtype, const std::string& value) {
  const bool is_zero = value == "0";
  Node node = Operator(is_zero ? "_zeros" : "_full",
                       {{"shape", TupleText(shape)}, {"dtype", DtypeName(dtype)}});
  if (!is_zero) node.attrs["value"] = value;
  return node;
}

Node CopyNode() { return Operator(kCopyOp, {}); }

Node PlainCopyNode() {
  return Operator("slice_axis", {{"axis", "0"}, {"begin", "0"}, {"end", "None"}});
}

Node CastNode(int dtype) { return Operator("Cast", {{"dtype", DtypeName(dtype)}}); }

Node SumNode(size_t terms) {
  return Operator("add_n", {{"num_args", std::to_string(terms)}});
}

Node CombineNode(Reducer reduce) {
  switch (reduce) {
    case Reducer::kLogSumExp:
      TOFU_CHECK(false) << "a logarithm of a sum of exponentials takes several operators";
      break;
    case Reducer::kWeighted:
    case Reducer::kApart:
      TOFU_CHECK_USER(false, Blame::kTable)
          << "a fetch combines weighted terms, which no operator of MXNet does";
      break;
    case Reducer::kMax:
      return Operator("_maximum", {});
    case Reducer::kMin:
      return Operator("_minimum", {});
    case Reducer::kProd:
      return Operator("elemwise_mul", {});
    case Reducer::kSum:
      break;
  }
  return Operator("elemwise_add", {});
}

Node DifferenceNode() { return Operator("elemwise_sub", {}); }

Node EqualNode() { return Operator("_equal", {}); }

Node OnesLikeNode() { return Operator("ones_like", {}); }

Node WhereNode() { return Operator("where", {}); }

Node ExpNode() { return Operator("exp", {}); }

Node LogNode() { return Operator("log", {}); }

int ConcatDtype(int dtype) { return dtype == kBool ? kUint8 : dtype; }

}  // namespace tofu
