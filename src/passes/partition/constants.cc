#include "passes/partition/constants.h"

#include <algorithm>

#include "mxnet/dialect/dialect.h"
#include "passes/partition/operator_parts.h"

namespace tofu {
namespace {

// The most bytes of a constant that readers share; it lives until its last reader. Each
// reader of a larger constant has its own.
constexpr int64_t kSharedBytes = 16 << 10;

bool IsShared(const Shape& shape, int dtype) {
  return NumElements(shape) * DtypeBytes(dtype) <= kSharedBytes;
}

bool ChangesOnlyItsShape(const StrategyRow& row) {
  return row.attrs.size() == 1 && row.attrs[0].kind == AttrRewrite::Kind::kOutputShape &&
         row.attrs[0].output == 0;
}

// Whether the operator can be split along the dimension so that each part makes its own
// indices.
bool IsSplittable(const StrategyRow& row, const DimAccess& dim) {
  if (dim.whole || dim.lo.terms.size() != 1) return false;
  const int var = dim.lo.terms[0].var;
  return std::count(row.splittable.begin(), row.splittable.end(), var) > 0 &&
         std::count(row.attrs[0].vars.begin(), row.attrs[0].vars.end(), var) > 0;
}

}  // namespace

bool IsConstantAlong(const Graph& graph, const StrategyTable& table, NodeEntry output,
                     const std::vector<int>& dims) {
  const Node& node = graph.nodes[output.node];
  const StrategyRow* row = table.row(output.node);
  if (node.is_variable() || !node.inputs.empty() || node.num_outputs != 1 ||
      row == nullptr || row->random || row->outputs.empty() ||
      !row->outputs[0].reduce.empty() || !ChangesOnlyItsShape(*row)) {
    return false;
  }
  const std::vector<DimAccess>& known = row->outputs[0].dims;
  return std::all_of(dims.begin(), dims.end(), [&](int d) {
    return d < static_cast<int>(known.size()) && IsSplittable(*row, known[d]);
  });
}

bool ConstantMaker::CanMake(NodeEntry output, const Box& region) const {
  const Box whole = WholeBox(graph_.shape(output));
  if (region.Volume() == 0 || !Contains(whole, region)) return false;
  std::vector<int> divided;
  for (int d = 0; d < region.rank(); ++d) {
    if (region.begin[d] != whole.begin[d] || region.end[d] != whole.end[d]) {
      divided.push_back(d);
    }
  }
  return IsConstantAlong(graph_, table_, output, divided);
}

NodeEntry ConstantMaker::Make(NodeEntry output, const Box& region, int worker,
                              const std::string& name) {
  const Shape shape = region.Extents();
  const int dtype = graph_.dtype(output);
  const auto key = std::make_pair(output.node, std::make_pair(worker, shape));
  const auto found = shared_.find(key);
  if (found != shared_.end()) return found->second;
  const Node& node = graph_.nodes[output.node];
  Node constant;
  constant.op = node.op;
  constant.name = name + "/constant";
  constant.attrs = WithoutTofuAttrs(node.attrs);
  constant.attrs[table_.row(output.node)->attrs[0].name] = TupleText(shape);
  const NodeEntry made = {builder_.Add(std::move(constant), worker, {shape}, {dtype}), 0};
  if (IsShared(shape, dtype)) shared_.emplace(key, made);
  return made;
}

NodeEntry ConstantMaker::Zeros(const Shape& shape, int dtype, int worker,
                               const std::string& name) {
  const auto key = std::make_pair(dtype, std::make_pair(worker, shape));
  const auto found = zeros_.find(key);
  if (found != zeros_.end()) return found->second;
  const NodeEntry made = builder_.Fill(name + "/zeros", worker, shape, dtype, "0");
  if (IsShared(shape, dtype)) zeros_.emplace(key, made);
  return made;
}

}  // namespace tofu
