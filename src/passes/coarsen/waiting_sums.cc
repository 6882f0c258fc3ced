#include "passes/coarsen/waiting_sums.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "graph/head_roles.h"

namespace tofu {
namespace {

constexpr int kNobody = -1;
constexpr int kSeveral = -2;  // or a head

// [entry]: the only node that reads it, kNobody or kSeveral.
std::vector<int> OnlyReaders(const Graph& graph) {
  std::vector<int> readers(static_cast<size_t>(graph.num_entries()), kNobody);
  for (int node = 0; node < graph.num_nodes(); ++node) {
    for (NodeEntry input : graph.nodes[node].inputs) {
      int& reader = readers[graph.entry_id(input)];
      reader = reader == kNobody || reader == node ? node : kSeveral;
    }
  }
  for (NodeEntry head : graph.heads) readers[graph.entry_id(head)] = kSeveral;
  return readers;
}

// Whether some way to split the operator reduces the output, and all such ways by a sum.
bool IsSum(const StrategyRow& row, int output) {
  if (output >= static_cast<int>(row.outputs.size())) return false;
  bool is_sum = false;
  for (int var : row.splittable) {
    const auto found = row.outputs[output].reduce.find(var);
    if (found == row.outputs[output].reduce.end()) continue;
    if (found->second != Reducer::kSum) return false;
    is_sum = true;
  }
  return is_sum;
}

class Walk {
 public:
  Walk(const Graph& graph, const StrategyTable& table)
      : graph_(graph), table_(table), readers_(OnlyReaders(graph)) {
    found_.entries.assign(static_cast<size_t>(graph.num_entries()), false);
    found_.nodes.assign(graph.nodes.size(), false);
  }

  WaitingSums Run(SumsWait where) {
    if (where == SumsWait::kNever) return {};
    const std::set<std::string> parameters = Parameters();
    bool adds = false;
    for (size_t i = 0; i < graph_.heads.size(); ++i) {
      if (parameters.count(RoleTarget(graph_.head_roles[i], "gradient:")) == 0) continue;
      const int node = graph_.heads[i].node;
      if (!Adds(node)) continue;
      Add(node);
      adds = true;
    }
    for (int node = 0; where == SumsWait::kAnywhere && node < graph_.num_nodes();
         ++node) {
      if (Waiting(node).size() < 2) continue;
      Add(node);
      adds = true;
    }
    return adds ? std::move(found_) : WaitingSums();
  }

 private:
  std::set<std::string> Parameters() const {
    std::set<std::string> names;
    for (const Node& node : graph_.nodes) {
      if (node.is_variable() && VariableRole(node) == "parameter")
        names.insert(node.name);
    }
    return names;
  }

  // Whether the node passes terms of its inputs through as they are.
  bool PassesThrough(int node) const {
    const StrategyRow* row = table_.row(node);
    const Node& n = graph_.nodes[node];
    return row != nullptr && row->terms >= 0 && n.num_outputs == 1 &&
           row->inputs.size() == n.inputs.size() && !IsSum(*row, 0);
  }

  // Whether the input of `reader` may wait, so that the sum is reduced at the reader or
  // after it.
  bool MayWait(int reader, NodeEntry input) {
    const int entry = graph_.entry_id(input);
    if (readers_[entry] != reader) return false;
    const auto [known, is_new] = known_.try_emplace(entry, false);
    if (is_new) known->second = MayMakeTerms(reader, input);
    return known->second;
  }

  bool MayMakeTerms(int reader, NodeEntry input) {
    const StrategyRow* row = table_.row(input.node);
    if (row == nullptr || row->random ||
        graph_.dtype(input) != graph_.dtype({reader, 0})) {
      return false;
    }
    if (IsSum(*row, input.index)) return true;
    const std::vector<NodeEntry>& inputs = graph_.nodes[input.node].inputs;
    return PassesThrough(input.node) &&
           std::any_of(inputs.begin(), inputs.end(),
                       [&](NodeEntry of_input) { return MayWait(input.node, of_input); });
  }

  std::set<int> Waiting(int node) {
    std::set<int> entries;
    if (!PassesThrough(node)) return entries;
    for (NodeEntry input : graph_.nodes[node].inputs) {
      if (MayWait(node, input)) entries.insert(graph_.entry_id(input));
    }
    return entries;
  }

  // Whether the node, or one before it, adds up several tensors that may wait.
  bool Adds(int node) {
    const std::set<int> waiting = Waiting(node);
    if (waiting.size() > 1) return true;
    const std::vector<NodeEntry>& inputs = graph_.nodes[node].inputs;
    return std::any_of(inputs.begin(), inputs.end(), [&](NodeEntry input) {
      return waiting.count(graph_.entry_id(input)) > 0 && Adds(input.node);
    });
  }

  // Notes the node and all before it whose tensors may wait.
  void Add(int node) {
    const std::set<int> waiting = Waiting(node);
    found_.nodes[node] = !waiting.empty();
    for (NodeEntry input : graph_.nodes[node].inputs) {
      const int entry = graph_.entry_id(input);
      if (waiting.count(entry) == 0 || found_.entries[entry]) continue;
      found_.entries[entry] = true;
      if (!IsSum(*table_.row(input.node), input.index)) Add(input.node);
    }
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const std::vector<int> readers_;
  std::map<int, bool> known_;  // by entry, whether it may wait
  WaitingSums found_;
};

}  // namespace

WaitingSums FindWaitingSums(const Graph& graph, const StrategyTable& table,
                            SumsWait where) {
  return Walk(graph, table).Run(where);
}

}  // namespace tofu
