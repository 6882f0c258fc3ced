#include "passes/search/tilings/batch_dimension.h"

#include <algorithm>
#include <string>

#include "graph/head_roles.h"
#include "passes/coarsen/group.h"

namespace tofu {
namespace {

bool IsSplittable(const StrategyRow& row, int var) {
  return std::find(row.splittable.begin(), row.splittable.end(), var) !=
         row.splittable.end();
}

bool HasOneValue(const IndexVar& var) {
  return var.kind == IndexVar::Extent::kConstant && var.constant == 1;
}

// The first dimension that `var` leads, or -1.
int DimensionOf(const StrategyRow& row, const std::vector<DimAccess>& dims, int var) {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (LeadingVar(row, dims[d]) == var) return static_cast<int>(d);
  }
  return -1;
}

int BatchVar(const Graph& graph, const StrategyRow& row, int node,
             const std::vector<int>& tensors) {
  const std::vector<NodeEntry>& inputs = graph.nodes[node].inputs;
  for (size_t i = 0; i < inputs.size() && i < row.inputs.size(); ++i) {
    const int dim = tensors[graph.entry_id(inputs[i])];
    if (dim < 0 || dim >= static_cast<int>(row.inputs[i].dims.size())) continue;
    const int var = LeadingVar(row, row.inputs[i].dims[dim]);
    if (var >= 0 && IsSplittable(row, var)) return var;
  }
  return -1;
}

bool IsBatch(const std::string& role) {
  return role == "data" || role.compare(0, 10, "head_grad:") == 0;
}

}  // namespace

int LeadingVar(const StrategyRow& row, const DimAccess& access) {
  if (access.whole || access.lo.divisor != 1) return -1;
  int var = -1;
  int64_t largest = 0;
  for (const AffineForm::Term& term : access.lo.terms) {
    if (term.coef <= largest || HasOneValue(row.vars[term.var])) continue;
    largest = term.coef;
    var = term.var;
  }
  return var;
}

BatchDimensions FindBatch(const Graph& graph, const StrategyTable& table) {
  BatchDimensions batch;
  batch.tensors.assign(static_cast<size_t>(graph.num_entries()), -1);
  batch.operators.assign(graph.nodes.size(), -1);
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& n = graph.nodes[node];
    const int first = graph.first_entry[node];
    if (n.is_variable()) {
      const bool has_rank = !graph.shapes[first].empty();
      if (has_rank && IsBatch(VariableRole(n))) batch.tensors[first] = 0;
      continue;
    }
    const StrategyRow* row = table.row(node);
    if (row == nullptr) continue;
    const int var = BatchVar(graph, *row, node, batch.tensors);
    batch.operators[node] = var;
    for (int i = 0; var >= 0 && i < n.num_outputs; ++i) {
      if (i >= static_cast<int>(row->outputs.size())) break;
      batch.tensors[first + i] = DimensionOf(*row, row->outputs[i].dims, var);
    }
  }
  return batch;
}

}  // namespace tofu
