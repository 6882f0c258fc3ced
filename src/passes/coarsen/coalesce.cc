#include "passes/coarsen/coalesce.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/union_find.h"
#include "graph/head_roles.h"
#include "graph/lives/repeats.h"
#include "passes/coarsen/elementwise.h"
#include "passes/coarsen/timesteps.h"

namespace tofu {
namespace {

class Coalescer {
 public:
  Coalescer(const Graph& graph, const StrategyTable& table, const Groups& groups,
            const CoalesceOptions& options)
      : graph_(graph),
        table_(table),
        groups_(groups),
        options_(options),
        used_(UsedEntries(graph)),
        entries_(graph.num_entries()),
        waiting_(FindWaitingSums(graph, table, options.sums_wait)),
        pinned_(options.pinned) {}

  CoarseGraph Run() {
    FindUpdates();
    MergeElementwise();
    MergeVariablesWithGradients();
    MergeRepeats();
    MergeTimesteps();
    NumberTensors();
    NumberOperators();
    return std::move(coarse_);
  }

 private:
  void Merge(int a, int b, Tie::Reason reason, int node = -1) {
    if (graph_.shapes[a] != graph_.shapes[b]) return;
    if (waiting_.MayWait(a) != waiting_.MayWait(b)) return;
    const auto pin = pinned_.find(entries_.Find(a));
    const auto other = pinned_.find(entries_.Find(b));
    if (pin != pinned_.end() && other != pinned_.end() && pin->second != other->second &&
        reason == Tie::Reason::kTimestep) {
      return;
    }
    if (!entries_.Merge(a, b)) return;
    coarse_.ties.push_back({a, b, reason, node});
    if (pin != pinned_.end()) {
      pinned_.emplace(entries_.Find(a), pin->second);
    } else if (other != pinned_.end()) {
      pinned_.emplace(entries_.Find(a), other->second);
    }
  }

  // Whether the tensors of an element-wise operator share a class.
  bool IsMerged(int node) const {
    if (waiting_.AddsTerms(node)) return waiting_.MayWait(graph_.first_entry[node]);
    const bool is_released = !options_.released.empty() && options_.released[node];
    return options_.merge_elementwise && !is_released;
  }

  // Finds variables, and updates that are not cut like their weight.
  void FindUpdates() {
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (!graph_.nodes[node].is_variable()) continue;
      variables_.emplace(graph_.nodes[node].name, graph_.first_entry[node]);
    }
    follows_.assign(graph_.nodes.size(), -1);
    if (options_.updates == UpdateTies::kAll) return;
    for (size_t i = 0; i < graph_.head_roles.size(); ++i) {
      const std::string name = RoleTarget(graph_.head_roles[i], "update:");
      const auto weight = variables_.find(name);
      const int node = graph_.heads[i].node;
      if (weight == variables_.end() || !IsElementwise(graph_, table_, node)) continue;
      if (!Reads(node, weight->second)) continue;
      follows_[node] = OwnTensor(node, name);
      if (follows_[node] >= 0) own_.emplace(name, follows_[node]);
    }
  }

  bool Reads(int node, int entry) const {
    const std::vector<NodeEntry>& inputs = graph_.nodes[node].inputs;
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](NodeEntry input) { return graph_.entry_id(input) == entry; });
  }

  // The tensor that an update reads and that is cut like the update, not like its weight:
  // a state, or the gradient. -1: none.
  int OwnTensor(int node, const std::string& weight) const {
    for (NodeEntry input : graph_.nodes[node].inputs) {
      const std::string role = VariableRole(graph_.nodes[input.node]);
      if (RoleTarget(role, "state:") == weight) return graph_.entry_id(input);
    }
    for (size_t i = 0; i < graph_.head_roles.size(); ++i) {
      const int entry = graph_.entry_id(graph_.heads[i]);
      const bool is_gradient =
          RoleTarget(graph_.head_roles[i], "gradient:") == weight && Reads(node, entry);
      if (is_gradient && options_.updates == UpdateTies::kNone) return entry;
    }
    return -1;
  }

  void MergeElementwise() {
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      const bool is_merged = IsMerged(node) && IsElementwise(graph_, table_, node);
      elementwise_.push_back(is_merged || follows_[node] >= 0);
      if (!elementwise_.back() || follows_[node] >= 0) continue;
      const int first = graph_.first_entry[node];
      for (int i = 1; i < graph_.nodes[node].num_outputs; ++i) {
        Merge(first, first + i, Tie::Reason::kElementwise, node);
      }
      for (NodeEntry input : graph_.nodes[node].inputs) {
        Merge(first, graph_.entry_id(input), Tie::Reason::kElementwise, node);
      }
    }
  }

  // Ties variables to their gradients. The tiles of a parameter's gradient update the
  // tiles of the parameter, or of its state, in place. An input's gradient has the
  // input's tiles: the producer of the input continues with them.
  void MergeVariablesWithGradients() {
    const auto tie = [&](const std::string& name, int entry) {
      const auto it = variables_.find(name);
      if (it != variables_.end()) Merge(it->second, entry, Tie::Reason::kParameter);
    };
    const auto tie_apart = [&](const std::string& name, int entry) {
      const auto own = own_.find(name);
      if (own != own_.end()) Merge(own->second, entry, Tie::Reason::kParameter);
      return own != own_.end();
    };
    for (size_t i = 0; i < graph_.head_roles.size(); ++i) {
      const std::string& role = graph_.head_roles[i];
      const int entry = graph_.entry_id(graph_.heads[i]);
      const std::string weight = RoleTarget(role, "gradient:");
      if (options_.updates != UpdateTies::kNone || !tie_apart(weight, entry)) {
        tie(weight, entry);
      }
      tie(RoleTarget(role, "update:"), entry);
      tie(RoleTarget(role, "aux:"), entry);
    }
    for (const auto& [name, entry] : variables_) {
      const std::string weight =
          RoleTarget(VariableRole(graph_.nodes[EntryNode(entry)]), "state:");
      if (!tie_apart(weight, entry)) tie(weight, entry);
    }
  }

  // Ties the tensors of a repeat to those of the operator that it repeats.
  void MergeRepeats() {
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      const Node& n = graph_.nodes[node];
      for (int i = 0; IsRepeat(n) && i < n.num_outputs; ++i) {
        Merge(graph_.entry_id({n.control_deps[0], i}), graph_.entry_id({node, i}),
              Tie::Reason::kRepeat);
      }
    }
  }

  void MergeTimesteps() {
    signatures_ = Signatures(graph_, table_);
    TellApartAdders();
    if (!options_.merge_timesteps) return;
    const std::vector<int> first = AlignTimesteps(graph_, groups_, signatures_);
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (first[node] == node) continue;
      const Node& a = graph_.nodes[first[node]];
      const Node& b = graph_.nodes[node];
      for (size_t i = 0; i < b.inputs.size(); ++i) {
        Merge(graph_.entry_id(a.inputs[i]), graph_.entry_id(b.inputs[i]),
              Tie::Reason::kTimestep);
      }
      for (int i = 0; i < b.num_outputs; ++i) {
        Merge(graph_.entry_id({first[node], i}), graph_.entry_id({node, i}),
              Tie::Reason::kTimestep);
      }
    }
  }

  // Operators that may add terms have other ways to split than their equals.
  void TellApartAdders() {
    const int next = static_cast<int>(signatures_.size());
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (waiting_.AddsTerms(node)) signatures_[node] += next;
    }
  }

  // Numbers classes by their first tensor.
  void NumberTensors() {
    std::vector<int> number(static_cast<size_t>(graph_.num_entries()), -1);
    for (int entry = 0; entry < graph_.num_entries(); ++entry) {
      int& id = number[entries_.Find(entry)];
      if (id < 0) {
        id = static_cast<int>(coarse_.tensors.size());
        coarse_.tensors.push_back({graph_.shapes[entry], {}, waiting_.MayWait(entry)});
      }
      coarse_.tensors[id].entries.push_back(entry);
      coarse_.tensor_class.push_back(id);
    }
  }

  std::vector<OpSlot> Slots(int node) const {
    std::vector<OpSlot> slots;
    const Node& n = graph_.nodes[node];
    bool live = false;
    for (int i = 0; i < n.num_outputs; ++i) {
      const int entry = graph_.entry_id({node, i});
      if (!used_[entry]) continue;
      live = true;
      slots.push_back({true, false, i, coarse_.tensor_class[entry]});
    }
    // An operator that nothing reads is not computed, so it reads nothing either.
    for (size_t i = 0; live && i < n.inputs.size(); ++i) {
      const int entry = graph_.entry_id(n.inputs[i]);
      const bool is_parameter =
          VariableRole(graph_.nodes[n.inputs[i].node]) == "parameter";
      slots.push_back(
          {false, is_parameter, static_cast<int>(i), coarse_.tensor_class[entry]});
    }
    return slots;
  }

  // Equal for operators of one class, which cost the same: their signatures and classes
  // are equal. Element-wise operators of one tensor class are one class, whatever they
  // compute; only a random one differs, as it costs something if it is not split.
  std::vector<int> Key(int node, const std::vector<OpSlot>& slots) const {
    const bool is_random = table_.row(node) != nullptr && table_.row(node)->random;
    if (elementwise_[node] && !is_random && follows_[node] < 0) {
      return {-1, coarse_.tensor_class[graph_.first_entry[node]]};
    }
    std::vector<int> key = {signatures_[node]};
    for (const OpSlot& slot : slots) {
      key.insert(key.end(), {slot.is_output ? 1 : 0, slot.index, slot.tensor_class,
                             slot.reads_parameter ? 1 : 0});
    }
    return key;
  }

  void NumberOperators() {
    std::map<std::vector<int>, int> numbers;
    coarse_.op_class.assign(graph_.nodes.size(), -1);
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (graph_.nodes[node].is_variable()) continue;
      const std::vector<OpSlot> slots = Slots(node);
      const int next = static_cast<int>(coarse_.operators.size());
      const auto [it, is_new] = numbers.emplace(Key(node, slots), next);
      if (is_new) {
        coarse_.operators.push_back({{},
                                     signatures_[node],
                                     elementwise_[node],
                                     waiting_.AddsTerms(node),
                                     slots,
                                     Followed(node)});
      }
      coarse_.operators[it->second].nodes.push_back(node);
      coarse_.op_class[node] = it->second;
    }
  }

  int Followed(int node) const {
    if (!elementwise_[node]) return -1;
    const int entry = follows_[node] >= 0 ? follows_[node] : graph_.first_entry[node];
    return coarse_.tensor_class[entry];
  }

  int EntryNode(int entry) const {
    const auto it =
        std::upper_bound(graph_.first_entry.begin(), graph_.first_entry.end(), entry);
    return static_cast<int>(it - graph_.first_entry.begin()) - 1;
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const Groups& groups_;
  const CoalesceOptions& options_;
  const std::vector<bool> used_;
  UnionFind entries_;
  const WaitingSums waiting_;
  std::map<int, Cuts> pinned_;            // root in entries_ -> its cuts
  std::map<std::string, int> variables_;  // name -> entry
  // The tensor that an update is split like instead of its weight: by the weight's name,
  // and [node] (-1: none).
  std::map<std::string, int> own_;
  std::vector<int> follows_;
  std::vector<bool> elementwise_;  // [node]
  std::vector<int> signatures_;    // [node]
  CoarseGraph coarse_;
};

}  // namespace

CoarseGraph Coalesce(const Graph& graph, const StrategyTable& table, const Groups& groups,
                     const CoalesceOptions& options) {
  return Coalescer(graph, table, groups, options).Run();
}

}  // namespace tofu
