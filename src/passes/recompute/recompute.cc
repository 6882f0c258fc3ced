#include "passes/recompute/recompute.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "graph/head_roles.h"
#include "graph/lives/draws.h"
#include "graph/lives/repeats.h"
#include "graph/lives/tensor_lives.h"
#include "graph/verify_graph.h"
#include "passes/recompute/choose_segments.h"

namespace tofu {
namespace {

constexpr char kSuffix[] = "_again";

// The nodes that the outputs need.
std::vector<bool> Needed(const Graph& graph) {
  std::vector<bool> needed(graph.nodes.size(), false);
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    if (HeadRole(graph, h) == kOutputRole) needed[graph.heads[h].node] = true;
  }
  for (int node = graph.num_nodes() - 1; node >= 0; --node) {
    if (!needed[node]) continue;
    for (NodeEntry input : graph.nodes[node].inputs) needed[input.node] = true;
  }
  return needed;
}

// The place in `order` of the first operator of the backward pass, or the order's size.
size_t BeginOfBackward(const Graph& graph, const std::vector<int>& order) {
  const std::vector<bool> forward = Needed(graph);
  std::vector<bool> is_output(static_cast<size_t>(graph.num_entries()), false);
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    if (HeadRole(graph, h) == kOutputRole)
      is_output[graph.entry_id(graph.heads[h])] = true;
  }
  const auto begins = [&](NodeEntry input) {
    const Node& n = graph.nodes[input.node];
    if (n.is_variable()) return !RoleTarget(VariableRole(n), "head_grad:").empty();
    return static_cast<bool>(is_output[graph.entry_id(input)]);
  };
  for (size_t place = 0; place < order.size(); ++place) {
    const Node& n = graph.nodes[order[place]];
    if (forward[order[place]] || n.is_variable()) continue;
    if (std::any_of(n.inputs.begin(), n.inputs.end(), begins)) return place;
  }
  return order.size();
}

class Recomputer {
 public:
  Recomputer(const Graph& graph, const StrategyTable& table,
             const RecomputeOptions& options)
      : graph_(graph),
        table_(table),
        options_(options),
        lives_(FindTensorLives(graph)),
        begin_(BeginOfBackward(graph, lives_.order)),
        tensors_(static_cast<size_t>(graph.num_entries()), -1),
        last_read_(static_cast<size_t>(graph.num_entries()), -1),
        read_late_(static_cast<size_t>(graph.num_entries()), false),
        moved_(static_cast<size_t>(graph.num_nodes()), -1),
        repeated_(static_cast<size_t>(graph.num_entries()), NodeEntry{-1, 0}) {}

  Recomputed Run() {
    MakeRow();
    const SegmentChoice choice = ChooseSegments(row_, options_.limit_bytes);
    result_.saved_bytes = SavedBytes(row_);
    result_.bytes = choice.bytes;
    result_.cost = choice.cost;
    if (choice.segments.empty()) {
      result_.graph = graph_;
      result_.table = table_;
      return std::move(result_);
    }
    result_.num_segments = static_cast<int>(choice.segments.size());
    Rewrite(choice);
    IndexEntries(&result_.graph);
    if (kVerifyGraphs) VerifyGraph(result_.graph, "recompute");
    return std::move(result_);
  }

 private:
  bool IsFixed(int node) const {
    return RunsOnce(graph_.nodes[node], table_.row(node)) ||
           options_.node_costs[node] < 0;
  }

  bool IsView(int node) const {
    const StrategyRow* row = table_.row(node);
    return row != nullptr && row->views && !graph_.nodes[node].inputs.empty();
  }

  void MakeRow() {
    for (size_t place = 0; place < begin_ && begin_ < lives_.order.size(); ++place) {
      const int node = lives_.order[place];
      if (!graph_.nodes[node].is_variable()) AddOperator(node);
    }
    for (size_t place = begin_; place < lives_.order.size(); ++place) {
      for (NodeEntry input : graph_.nodes[lives_.order[place]].inputs) {
        const int tensor = tensors_[graph_.entry_id(input)];
        if (tensor >= 0) row_.tensors[tensor].saved = true;
        read_late_[graph_.entry_id(input)] = true;
      }
    }
  }

  void AddOperator(int node) {
    const int number = static_cast<int>(row_.operators.size());
    ForwardRow::Operator op;
    op.fixed = IsFixed(node);
    op.cost = std::max<int64_t>(options_.node_costs[node], 0);
    for (NodeEntry input : graph_.nodes[node].inputs) {
      const int tensor = tensors_[graph_.entry_id(input)];
      last_read_[graph_.entry_id(input)] = number;
      if (tensor < 0) continue;  // a variable
      op.reads.push_back(tensor);
      row_.tensors[tensor].last_reader = number;
    }
    for (int i = 0; i < graph_.nodes[node].num_outputs; ++i) {
      const int entry = graph_.entry_id({node, i});
      if (IsView(node)) {
        AddView(entry, tensors_[graph_.entry_id(graph_.nodes[node].inputs[0])]);
        continue;
      }
      ForwardRow::Tensor tensor;
      tensor.writer = tensor.last_reader = number;
      tensor.bytes = NumElements(graph_.shapes[entry]) * DtypeBytes(graph_.dtypes[entry]);
      tensor.resident = lives_.keep[entry] != Keep::kUntilRead;
      tensors_[entry] = static_cast<int>(row_.tensors.size());
      op.writes.push_back(tensors_[entry]);
      row_.tensors.push_back(tensor);
    }
    nodes_.push_back(node);
    row_.operators.push_back(std::move(op));
  }

  // An entry in the memory of a tensor of the row, or of a variable (-1).
  void AddView(int entry, int tensor) {
    tensors_[entry] = tensor;
    if (tensor >= 0 && lives_.keep[entry] != Keep::kUntilRead) {
      row_.tensors[tensor].resident = true;
    }
  }

  // The operators of a segment that run again, and the views that these or the backward
  // pass read of their results, and of variables.
  std::vector<int> Again(Segment segment) {
    const std::vector<int> again = NeedsOf(row_, segment, true).again;
    std::vector<bool> runs(row_.operators.size(), false);
    for (int op : again) runs[op] = true;
    std::vector<int> all;
    for (int op = segment.end - 1; op >= segment.begin; --op) {
      const Node& n = graph_.nodes[nodes_[op]];
      if (IsView(nodes_[op]) && IsMadeAgain(n.inputs[0], segment, runs)) {
        for (int i = 0; i < n.num_outputs; ++i) {
          runs[op] = runs[op] || read_late_[graph_.entry_id({nodes_[op], i})];
        }
      }
      if (!runs[op]) continue;
      all.push_back(op);
      for (NodeEntry input : n.inputs) read_late_[graph_.entry_id(input)] = true;
    }
    std::reverse(all.begin(), all.end());
    return all;
  }

  // Whether views of a tensor's memory are made again with a segment.
  bool IsMadeAgain(NodeEntry entry, Segment segment,
                   const std::vector<bool>& runs) const {
    const int tensor = tensors_[graph_.entry_id(entry)];
    if (tensor < 0) return true;  // a variable's
    const ForwardRow::Tensor& t = row_.tensors[tensor];
    return runs[t.writer] && !t.resident && t.last_reader < segment.end;
  }

  // Writes the new graph: all nodes in order, and the repeats of each segment before the
  // first node of the backward pass that reads one.
  void Rewrite(const SegmentChoice& choice) {
    std::vector<int> segment_of(graph_.nodes.size(), -1);
    std::vector<std::vector<int>> again;
    for (Segment segment : choice.segments) {
      again.push_back(Again(segment));
      const int number = static_cast<int>(again.size()) - 1;
      for (int op : again.back()) {
        segment_of[nodes_[op]] = number;
        MarkRepeated(op, segment);
      }
    }
    result_.table.rows = table_.rows;
    for (size_t place = 0; place < lives_.order.size(); ++place) {
      const int node = lives_.order[place];
      const bool late = place >= begin_;
      for (NodeEntry input : graph_.nodes[node].inputs) {
        if (!late || !is_again_[graph_.entry_id(input)]) continue;
        std::vector<int>& waiting = again[segment_of[input.node]];
        for (int op : waiting) AddRepetition(nodes_[op]);
        waiting.clear();
      }
      AddCopy(node, late);
    }
    result_.graph.heads = graph_.heads;
    for (NodeEntry& head : result_.graph.heads) head.node = moved_[head.node];
    result_.graph.head_roles = graph_.head_roles;
  }

  // Marks the outputs that the backward pass reads from the repeat of `op`: all that do
  // not stay.
  void MarkRepeated(int op, Segment segment) {
    is_again_.resize(static_cast<size_t>(graph_.num_entries()), false);
    for (int i = 0; i < graph_.nodes[nodes_[op]].num_outputs; ++i) {
      const int entry = graph_.entry_id({nodes_[op], i});
      if (tensors_[entry] < 0) {  // a view of a variable
        is_again_[entry] =
            lives_.keep[entry] == Keep::kUntilRead && last_read_[entry] < segment.end;
        continue;
      }
      const ForwardRow::Tensor& tensor = row_.tensors[tensors_[entry]];
      is_again_[entry] = !tensor.resident && tensor.last_reader < segment.end;
    }
  }

  void AddRepetition(int node) {
    Node copy = graph_.nodes[node];
    copy.attrs[kRepeatsAttr] = copy.name;
    copy.name += kSuffix;
    copy.control_deps = {moved_[node]};
    for (NodeEntry& input : copy.inputs) input = Moved(input, true);
    const int number = Add(node, std::move(copy));
    for (int i = 0; i < graph_.nodes[node].num_outputs; ++i) {
      repeated_[graph_.entry_id({node, i})] = {number, i};
    }
    ++result_.num_repeated;
  }

  void AddCopy(int node, bool late) {
    Node copy = graph_.nodes[node];
    for (NodeEntry& input : copy.inputs) input = Moved(input, late);
    for (int& dependency : copy.control_deps) dependency = moved_[dependency];
    moved_[node] = Add(node, std::move(copy));
  }

  NodeEntry Moved(NodeEntry entry, bool late) const {
    const int id = graph_.entry_id(entry);
    if (late && is_again_[id]) return repeated_[id];
    return {moved_[entry.node], entry.index};
  }

  // Appends a node with the tensors and strategies of a node of the given graph.
  int Add(int source, Node node) {
    for (int i = 0; i < node.num_outputs; ++i) {
      result_.graph.shapes.push_back(graph_.shape({source, i}));
      result_.graph.dtypes.push_back(graph_.dtype({source, i}));
    }
    result_.graph.nodes.push_back(std::move(node));
    result_.table.node_rows.push_back(table_.node_rows[source]);
    return static_cast<int>(result_.graph.nodes.size()) - 1;
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const RecomputeOptions& options_;
  const TensorLives lives_;
  const size_t begin_;  // place of the order
  ForwardRow row_;
  std::vector<int> nodes_;           // [operator of the row]
  std::vector<int> tensors_;         // [entry]: of the row, or -1
  std::vector<int> last_read_;       // [entry]: by an operator of the row, or -1
  std::vector<bool> read_late_;      // [entry]: by the backward pass, or a repeat
  std::vector<bool> is_again_;       // [entry]: the backward pass reads the repeat's
  std::vector<int> moved_;           // [node]: its number in the result
  std::vector<NodeEntry> repeated_;  // [entry]: in the result
  Recomputed result_;
};

}  // namespace

Recomputed RecomputeActivations(const Graph& graph, const StrategyTable& table,
                                const RecomputeOptions& options) {
  TOFU_CHECK_USER(options.node_costs.size() == graph.nodes.size(), Blame::kGraph)
      << "recompute: found " << options.node_costs.size()
      << " costs, expected one for each of " << graph.nodes.size() << " nodes";
  return Recomputer(graph, table, options).Run();
}

}  // namespace tofu
