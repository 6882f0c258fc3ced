#include "passes/coarsen/elementwise.h"

#include <algorithm>

namespace tofu {
namespace {

// The variable of which the form is exactly one bound, or -1.
int SingleVar(const AffineForm& form, bool upper) {
  const bool single = form.terms.size() == 1 && form.terms[0].coef == 1 &&
                      form.terms[0].upper == upper && form.constant == 0 &&
                      form.divisor == 1;
  return single ? form.terms[0].var : -1;
}

// The variable at whose index alone the dimension is touched, or -1.
int PointVar(const DimAccess& access) {
  if (access.whole) return -1;
  const int var = SingleVar(access.lo, false);
  return var >= 0 && SingleVar(access.hi, true) == var ? var : -1;
}

// Whether each dimension is touched at its variable's index. Accesses of dimensions of
// extent 1, which are never cut, do not matter.
bool TouchesAt(const std::vector<DimAccess>& dims, const Shape& shape,
               const std::vector<int>& vars) {
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1 && PointVar(dims[d]) != vars[d]) return false;
  }
  return true;
}

// Whether every dimension has its own splittable variable.
bool AreDistinctAndSplittable(const std::vector<int>& vars, const Shape& shape,
                              const StrategyRow& row) {
  for (size_t d = 0; d < vars.size(); ++d) {
    if (shape[d] == 1) continue;
    if (std::count(vars.begin(), vars.end(), vars[d]) != 1) return false;
    if (std::count(row.splittable.begin(), row.splittable.end(), vars[d]) == 0) {
      return false;
    }
  }
  return true;
}

bool HasNoneBut(int var, const std::vector<int>& vars) {
  return std::all_of(vars.begin(), vars.end(), [var](int v) { return v == var; });
}

}  // namespace

std::vector<int> DimensionVars(const StrategyRow& row) {
  std::vector<int> vars;
  if (row.outputs.empty()) return vars;
  for (const DimAccess& dim : row.outputs[0].dims) vars.push_back(PointVar(dim));
  return vars;
}

bool IsElementwise(const Graph& graph, const StrategyTable& table, int node) {
  const StrategyRow* row = table.row(node);
  if (row == nullptr || !row->elementwise) return false;
  const Node& n = graph.nodes[node];
  if (row->inputs.size() != n.inputs.size() ||
      row->outputs.size() != static_cast<size_t>(n.num_outputs) || row->outputs.empty()) {
    return false;
  }
  const std::vector<int> vars = DimensionVars(*row);
  const Shape& shape = graph.shape({node, 0});
  if (!AreDistinctAndSplittable(vars, shape, *row)) return false;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    const InputAccess& access = row->inputs[i];
    if (graph.shape(n.inputs[i]) != shape || !TouchesAt(access.dims, shape, vars) ||
        !HasNoneBut(row->terms, access.only_first) || access.pad.has_value()) {
      return false;
    }
  }
  for (int i = 0; i < n.num_outputs; ++i) {
    const OutputAccess& access = row->outputs[i];
    if (graph.shape({node, i}) != shape || !TouchesAt(access.dims, shape, vars) ||
        access.reduce.size() > access.reduce.count(row->terms)) {
      return false;
    }
  }
  return true;
}

}  // namespace tofu
