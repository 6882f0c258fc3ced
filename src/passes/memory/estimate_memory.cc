#include "passes/memory/estimate_memory.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/box.h"
#include "graph/lives/tensor_lives.h"

namespace tofu {
namespace {

// Whether a split variable occurs in the access to a dimension.
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
  // `fullest`: the digits of the worker whose tiles are counted.
  MemoryEstimator(const Graph& graph, const StrategyTable& table, const Plan& plan,
                  std::vector<int> fullest)
      : graph_(graph),
        table_(table),
        plan_(plan),
        fullest_(std::move(fullest)),
        lives_(FindTensorLives(graph)) {
    const int k = plan.workers();
    // Workers at both ends of the grid, and one inside it.
    for (int worker : std::set<int>{0, k / 2, k - 1}) {
      digits_.push_back(WorkerDigits(worker, plan.parts));
    }
    digits_.push_back(fullest_);
  }

  WorkerBytes Run() {
    CountWhatStays();
    int64_t alive = 0;
    for (int entry = 0; entry < graph_.num_entries(); ++entry) {
      if (lives_.keep[entry] == Keep::kAlways) alive += TileBytes(entry);
    }
    Worst(alive, 0);
    for (int node : lives_.order) {
      if (graph_.nodes[node].is_variable()) continue;
      const int64_t in_place = InPlaceBytes(node);
      for (int i = 0; i < graph_.nodes[node].num_outputs; ++i) {
        const int entry = graph_.entry_id({node, i});
        if (lives_.keep[entry] == Keep::kUntilRead) alive += TileBytes(entry);
      }
      Worst(alive - in_place, BufferBytes(node));
      for (int entry : lives_.dying[node]) alive -= TileBytes(entry);
    }
    return memory_;
  }

 private:
  int64_t TileBytes(int entry) const {
    const Box largest = TileBox(graph_.shapes[entry], plan_.tensor_cuts[entry],
                                plan_.division(), fullest_);
    return largest.Volume() * DtypeBytes(graph_.dtypes[entry]);
  }

  void CountWhatStays() {
    for (int entry = 0; entry < graph_.num_entries(); ++entry) {
      if (lives_.keep[entry] == Keep::kParameter) {
        memory_.parameters += TileBytes(entry);
      } else if (lives_.keep[entry] == Keep::kGradient) {
        memory_.gradients += TileBytes(entry);
      } else if (lives_.keep[entry] == Keep::kState) {
        memory_.optimizer_state += TileBytes(entry);
      }
    }
  }

  // The bytes of an output that an element-wise operator writes over an input.
  int64_t InPlaceBytes(int node) const {
    const StrategyRow* row = table_.row(node);
    const int output = graph_.first_entry[node];
    if (row == nullptr || !row->elementwise) return 0;
    if (graph_.nodes[node].num_outputs != 1 || lives_.keep[output] != Keep::kUntilRead)
      return 0;
    for (NodeEntry input : graph_.nodes[node].inputs) {
      const int entry = graph_.entry_id(input);
      const std::vector<int>& dying = lives_.dying[node];
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

  // The bytes of the buffers of one operator. Caches the result for equal operators that
  // are cut alike.
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
      ranges =
          VarRanges(*row, graph_, node, plan_.op_cuts[node], plan_.division(), digits);
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
    const Box tile = TileBox(shape, plan_.tensor_cuts[entry], plan_.division(), digits);
    return region == tile ? 0 : region.Volume() * DtypeBytes(graph_.dtypes[entry]);
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const Plan& plan_;
  const std::vector<int> fullest_;
  const TensorLives lives_;
  std::vector<std::vector<int>> digits_;  // of sampled workers
  std::map<std::vector<int64_t>, int64_t> known_;
  WorkerBytes memory_;
};

}  // namespace

int FullestWorker(const Plan& plan) {
  int worker = 0;
  for (size_t step = 0; step < plan.parts.size(); ++step) {
    const std::vector<int>& shares = plan.shares.of(step);
    const auto largest = std::max_element(shares.begin(), shares.end());
    worker = worker * plan.parts[step] + static_cast<int>(largest - shares.begin());
  }
  return worker;
}

WorkerBytes EstimateMemory(const Graph& graph, const StrategyTable& table,
                           const Plan& plan) {
  const std::vector<int> fullest = WorkerDigits(FullestWorker(plan), plan.parts);
  return MemoryEstimator(graph, table, plan, fullest).Run();
}

}  // namespace tofu
