#include "passes/search/tilings/basic_tilings.h"

#include <algorithm>

#include "passes/search/tilings/batch_dimension.h"

namespace tofu {
namespace {

using Dims = std::vector<DimAccess>;

bool Indexes(const Dims& dims, int var) {
  return std::any_of(dims.begin(), dims.end(), [var](const DimAccess& access) {
    return std::any_of(access.lo.terms.begin(), access.lo.terms.end(),
                       [var](const AffineForm::Term& term) { return term.var == var; });
  });
}

// Whether some index of `a` and of an output is none of `b`.
bool HasOwnIndex(const StrategyRow& row, const Dims& a, const Dims& b) {
  return std::any_of(row.splittable.begin(), row.splittable.end(), [&](int var) {
    return Indexes(a, var) && !Indexes(b, var) &&
           std::any_of(
               row.outputs.begin(), row.outputs.end(),
               [var](const OutputAccess& output) { return Indexes(output.dims, var); });
  });
}

bool IsProduct(const StrategyRow& row) {
  for (size_t a = 0; a < row.inputs.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      if (HasOwnIndex(row, row.inputs[a].dims, row.inputs[b].dims) &&
          HasOwnIndex(row, row.inputs[b].dims, row.inputs[a].dims)) {
        return true;
      }
    }
  }
  return false;
}

// The variables that lead one of the first `count` dimensions.
std::vector<int> Leading(const StrategyRow& row, const Dims& dims, size_t count) {
  std::vector<int> leading;
  for (int var : row.splittable) {
    for (size_t d = 0; d < dims.size() && d < count; ++d) {
      if (LeadingVar(row, dims[d]) != var) continue;
      leading.push_back(var);
      break;
    }
  }
  return leading;
}

std::vector<Dims> Tensors(const StrategyRow& row) {
  std::vector<Dims> tensors;
  for (const InputAccess& input : row.inputs) tensors.push_back(input.dims);
  for (const OutputAccess& output : row.outputs) tensors.push_back(output.dims);
  return tensors;
}

}  // namespace

std::vector<int> BasicTilings(const StrategyRow& row) {
  const bool both = row.elementwise || IsProduct(row);
  std::vector<int> allowed;
  for (const Dims& dims : Tensors(row)) {
    for (int var : Leading(row, dims, both ? kBasicDimensions : 1)) {
      if (std::find(allowed.begin(), allowed.end(), var) == allowed.end())
        allowed.push_back(var);
    }
    if (!both && !allowed.empty()) break;
  }
  if (allowed.empty()) return row.splittable;
  std::vector<int> ordered;
  for (int var : row.splittable) {
    if (std::find(allowed.begin(), allowed.end(), var) != allowed.end())
      ordered.push_back(var);
  }
  return ordered;
}

}  // namespace tofu
