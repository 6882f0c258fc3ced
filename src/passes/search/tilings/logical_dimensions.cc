#include "passes/search/tilings/logical_dimensions.h"

#include <algorithm>

#include "base/union_find.h"
#include "passes/search/tilings/alternatives.h"
#include "passes/search/tilings/batch_dimension.h"

namespace tofu {
namespace {

// Numbers every dimension of a tensor class and every variable of an operator class, and
// merges those that are the same logical dimension.
class Finder {
 public:
  Finder(const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse)
      : graph_(graph), table_(table), coarse_(coarse), sets_(Number()) {}

  LogicalDimensions Run() {
    for (size_t p = 0; p < coarse_.operators.size(); ++p) Tie(p);
    LogicalDimensions dimensions;
    std::vector<int> numbers(static_cast<size_t>(size_), -1);
    const auto number = [&](int item) {
      int& known = numbers[sets_.Find(item)];
      if (known < 0) known = dimensions.count++;
      return known;
    };
    for (size_t c = 0; c < coarse_.tensors.size(); ++c) {
      std::vector<int>& dims = dimensions.tensors.emplace_back();
      for (size_t d = 0; d < coarse_.tensors[c].shape.size(); ++d) {
        dims.push_back(number(first_dim_[c] + static_cast<int>(d)));
      }
    }
    for (size_t p = 0; p < coarse_.operators.size(); ++p) {
      const StrategyRow* row = RowOf(p);
      std::vector<int>& vars = dimensions.operators.emplace_back();
      if (row == nullptr) continue;
      vars.assign(row->vars.size(), -1);
      if (MayMixReductions(*row)) continue;
      for (int var : row->splittable) vars[var] = number(first_var_[p] + var);
    }
    return dimensions;
  }

 private:
  const StrategyRow* RowOf(size_t p) const {
    return table_.row(coarse_.operators[p].nodes[0]);
  }

  int Number() {
    for (const TensorClass& tensor : coarse_.tensors) {
      first_dim_.push_back(size_);
      size_ += static_cast<int>(tensor.shape.size());
    }
    for (size_t p = 0; p < coarse_.operators.size(); ++p) {
      first_var_.push_back(size_);
      const StrategyRow* row = RowOf(p);
      if (row != nullptr) size_ += static_cast<int>(row->vars.size());
    }
    return size_;
  }

  void Tie(size_t p) {
    const StrategyRow* row = RowOf(p);
    if (row == nullptr) return;
    const int node = coarse_.operators[p].nodes[0];
    const Node& n = graph_.nodes[node];
    for (size_t i = 0; i < std::min(n.inputs.size(), row->inputs.size()); ++i) {
      TieTensor(p, *row, row->inputs[i].dims, graph_.entry_id(n.inputs[i]));
    }
    for (size_t i = 0; i < row->outputs.size(); ++i) {
      if (static_cast<int>(i) >= n.num_outputs) break;
      TieTensor(p, *row, row->outputs[i].dims,
                graph_.first_entry[node] + static_cast<int>(i));
    }
  }

  void TieTensor(size_t p, const StrategyRow& row, const std::vector<DimAccess>& dims,
                 int entry) {
    const int tensor = coarse_.tensor_class[entry];
    const size_t rank = coarse_.tensors[tensor].shape.size();
    for (size_t d = 0; d < std::min(dims.size(), rank); ++d) {
      const int var = LeadingVar(row, dims[d]);
      if (var < 0) continue;
      sets_.Merge(first_dim_[tensor] + static_cast<int>(d), first_var_[p] + var);
    }
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const CoarseGraph& coarse_;
  int size_ = 0;
  std::vector<int> first_dim_;  // [tensor class]
  std::vector<int> first_var_;  // [operator class]
  UnionFind sets_;
};

}  // namespace

LogicalDimensions FindLogicalDimensions(const Graph& graph, const StrategyTable& table,
                                        const CoarseGraph& coarse) {
  return Finder(graph, table, coarse).Run();
}

}  // namespace tofu
