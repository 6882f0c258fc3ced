#include "passes/memory/estimate_memory.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/box.h"
#include "graph/memory_order.h"
#include "passes/coarsen/group.h"

namespace tofu {
namespace {

enum class Keep { kUntilRead, kParameter, kGradient, kState, kInPlace, kAlways };

Keep KeepOfVariable(const std::string& role) {
  if (role == "parameter" || role == "aux") return Keep::kParameter;
  return RoleTarget(role, "state:").empty() ? Keep::kAlways : Keep::kState;
}

Keep KeepOfHead(const std::string& role) {
  if (!RoleTarget(role, "gradient:").empty()) return Keep::kGradient;
  const bool in_place =
      !RoleTarget(role, "update:").empty() || !RoleTarget(role, "aux:").empty();
  return in_place ? Keep::kInPlace : Keep::kAlways;
}

// Whether a variable that is split occurs in what is touched of a dimension.
bool IsDivided(const DimAccess& dim, const std::vector<int>& op_cuts) {
  for (const AffineForm* form : {&dim.lo, &dim.hi}) {
    for (const AffineForm::Term& term : form->terms) {
      if (std::find(op_cuts.begin(), op_cuts.end(), term.var) != op_cuts.end())
        return true;
    }
  }
  return false;
}

class MemoryEstimator {
 public:
  MemoryEstimator(const Graph& graph, const StrategyTable& table, const Plan& plan)
      : graph_(graph),
        table_(table),
        plan_(plan),
        order_(MemoryOrder(graph)),
        keep_(KeepOfEntries()) {
    const int k = plan.workers();
    // Workers at the edges of the grid and one inside it.
    for (int worker : std::set<int>{0, k / 2, k - 1}) {
      digits_.push_back(WorkerDigits(worker, plan.parts));
    }
  }

  WorkerBytes Run() {
    CountWhatStays();
    FindLastReaders();
    int64_t alive = 0;
    for (int entry = 0; entry < graph_.num_entries(); ++entry) {
      if (keep_[entry] == Keep::kAlways) alive += TileBytes(entry);
    }
    Worst(alive, 0);
    for (int node : order_) {
      if (graph_.nodes[node].is_variable()) continue;
      const int64_t in_place = InPlaceBytes(node);
      for (int i = 0; i < graph_.nodes[node].num_outputs; ++i) {
        const int entry = graph_.entry_id({node, i});
        if (keep_[entry] == Keep::kUntilRead) alive += TileBytes(entry);
      }
      Worst(alive - in_place, BufferBytes(node));
      for (int entry : dying_[node]) alive -= TileBytes(entry);
    }
    return memory_;
  }

 private:
  std::vector<Keep> KeepOfEntries() const {
    std::vector<Keep> keep(static_cast<size_t>(graph_.num_entries()), Keep::kUntilRead);
    for (size_t i = 0; i < graph_.heads.size(); ++i) {
      const std::string role = i < graph_.head_roles.size() ? graph_.head_roles[i] : "";
      keep[graph_.entry_id(graph_.heads[i])] = KeepOfHead(role);
    }
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      const Node& n = graph_.nodes[node];
      if (!n.is_variable()) continue;
      keep[graph_.first_entry[node]] = KeepOfVariable(VariableRole(n));
    }
    return keep;
  }

  int64_t TileBytes(int entry) const {
    int64_t elements = NumElements(graph_.shapes[entry]);
    for (size_t i = 0; i < plan_.parts.size(); ++i) {
      if (plan_.tensor_cuts[entry][i] != kReplicated) elements /= plan_.parts[i];
    }
    return elements * DtypeBytes(graph_.dtypes[entry]);
  }

  void CountWhatStays() {
    for (int entry = 0; entry < graph_.num_entries(); ++entry) {
      if (keep_[entry] == Keep::kParameter) {
        memory_.parameters += TileBytes(entry);
      } else if (keep_[entry] == Keep::kGradient) {
        memory_.gradients += TileBytes(entry);
      } else if (keep_[entry] == Keep::kState) {
        memory_.optimizer_state += TileBytes(entry);
      }
    }
  }

  // A tensor without readers dies with its own operator.
  void FindLastReaders() {
    std::vector<int> last(static_cast<size_t>(graph_.num_entries()), -1);
    for (int node : order_) {
      for (int i = 0; i < graph_.nodes[node].num_outputs; ++i) {
        last[graph_.entry_id({node, i})] = node;
      }
      for (NodeEntry input : graph_.nodes[node].inputs) {
        last[graph_.entry_id(input)] = node;
      }
    }
    dying_.resize(graph_.nodes.size());
    for (int entry = 0; entry < graph_.num_entries(); ++entry) {
      if (keep_[entry] == Keep::kUntilRead) dying_[last[entry]].push_back(entry);
    }
  }

  // Bytes of an output that an element-wise operator writes over an input.
  int64_t InPlaceBytes(int node) const {
    const StrategyRow* row = table_.row(node);
    const int output = graph_.first_entry[node];
    if (row == nullptr || !row->elementwise) return 0;
    if (graph_.nodes[node].num_outputs != 1 || keep_[output] != Keep::kUntilRead)
      return 0;
    for (NodeEntry input : graph_.nodes[node].inputs) {
      const int entry = graph_.entry_id(input);
      const std::vector<int>& dying = dying_[node];
      const bool dies = std::find(dying.begin(), dying.end(), entry) != dying.end();
      if (dies && TileBytes(entry) == TileBytes(output)) return TileBytes(output);
    }
    return 0;
  }

  void Worst(int64_t alive, int64_t buffers) {
    if (alive + buffers <= memory_.activations + memory_.fetch_buffers) return;
    memory_.activations = alive;
    memory_.fetch_buffers = buffers;
  }

  // Equal operators that are cut alike have the same result, so it is cached.
  int64_t BufferBytes(int node) {
    const Node& n = graph_.nodes[node];
    const StrategyRow* row = table_.row(node);
    if (row != nullptr && row->elementwise) return 0;
    std::vector<int64_t> key = {table_.node_rows[node], n.num_outputs};
    const auto add = [&](int entry) {
      const Shape& shape = graph_.shapes[entry];
      const std::vector<int>& cuts = plan_.tensor_cuts[entry];
      key.push_back(graph_.dtypes[entry]);
      key.insert(key.end(), shape.begin(), shape.end());
      key.insert(key.end(), cuts.begin(), cuts.end());
    };
    key.insert(key.end(), plan_.op_cuts[node].begin(), plan_.op_cuts[node].end());
    for (NodeEntry input : n.inputs) add(graph_.entry_id(input));
    for (int i = 0; i < n.num_outputs; ++i) add(graph_.entry_id({node, i}));
    const auto [it, is_new] = known_.emplace(key, 0);
    if (!is_new) return it->second;
    for (const std::vector<int>& digits : digits_) {
      it->second = std::max(it->second, BufferBytes(node, digits));
    }
    return it->second;
  }

  int64_t BufferBytes(int node, const std::vector<int>& digits) const {
    const Node& n = graph_.nodes[node];
    const StrategyRow* row = table_.row(node);
    static const std::vector<DimAccess> kWhole;
    std::vector<Range> ranges;
    if (row != nullptr) {
      ranges = VarRanges(*row, graph_, node, plan_.op_cuts[node], plan_.parts, digits);
    }
    int64_t bytes = 0;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const bool known = row != nullptr && i < row->inputs.size();
      const auto& dims = known ? row->inputs[i].dims : kWhole;
      bytes +=
          BufferBytes(graph_.entry_id(n.inputs[i]), Divided(dims, node), ranges, digits);
    }
    for (int i = 0; i < n.num_outputs; ++i) {
      const bool known = row != nullptr && i < static_cast<int>(row->outputs.size());
      const auto& dims = known ? row->outputs[i].dims : kWhole;
      bytes +=
          BufferBytes(graph_.entry_id({node, i}), Divided(dims, node), ranges, digits);
    }
    return bytes;
  }

  // Makes a dimension whole if none of its variables is split.
  std::vector<DimAccess> Divided(std::vector<DimAccess> dims, int node) const {
    for (DimAccess& dim : dims) {
      dim.whole = dim.whole || !IsDivided(dim, plan_.op_cuts[node]);
    }
    return dims;
  }

  int64_t BufferBytes(int entry, const std::vector<DimAccess>& dims,
                      const std::vector<Range>& ranges,
                      const std::vector<int>& digits) const {
    const Shape& shape = graph_.shapes[entry];
    const Box region = Intersect(AccessBox(dims, shape, ranges), WholeBox(shape));
    const Box tile = TileBox(shape, plan_.tensor_cuts[entry], plan_.parts, digits);
    return region == tile ? 0 : region.Volume() * DtypeBytes(graph_.dtypes[entry]);
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const Plan& plan_;
  const std::vector<int> order_;          // of the nodes
  const std::vector<Keep> keep_;          // [entry]
  std::vector<std::vector<int>> dying_;   // [node]: entries that it reads last
  std::vector<std::vector<int>> digits_;  // of some workers
  std::map<std::vector<int64_t>, int64_t> known_;
  WorkerBytes memory_;
};

}  // namespace

WorkerBytes EstimateMemory(const Graph& graph, const StrategyTable& table,
                           const Plan& plan) {
  return MemoryEstimator(graph, table, plan).Run();
}

}  // namespace tofu
