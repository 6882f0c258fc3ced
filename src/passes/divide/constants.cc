#include "passes/divide/constants.h"

#include <algorithm>

namespace tofu {
namespace {

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

}  // namespace tofu
