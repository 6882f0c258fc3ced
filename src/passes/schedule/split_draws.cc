#include "passes/schedule/split_draws.h"

#include <map>
#include <string>
#include <utility>

#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

class Splitter {
 public:
  explicit Splitter(Partitioned* partitioned)
      : source_(*partitioned),
        graph_(partitioned->graph),
        in_draws_(graph_.num_entries(), NodeEntry{-1, 0}),
        in_rest_(graph_.num_entries(), NodeEntry{-1, 0}) {}

  // Marks the nodes that draw, and all that they need. Returns false if these include a
  // variable.
  bool FindDrawn() {
    is_drawn_.assign(graph_.num_nodes(), false);
    for (int node = graph_.num_nodes() - 1; node >= 0; --node) {
      const Node& n = graph_.nodes[node];
      if (n.runs_once) is_drawn_[node] = true;
      if (!is_drawn_[node]) continue;
      if (n.is_variable()) return false;
      any_ = true;
      for (NodeEntry input : n.inputs) is_drawn_[input.node] = true;
    }
    return true;
  }

  Draws Run() {
    Draws draws;
    if (!any_) return draws;
    FindCrossing();
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (is_drawn_[node]) {
        Add(node, graph_.nodes[node], &draws_, &in_draws_);
        AddVariables(node, &draws.drawn);
      } else {
        Add(node, std::move(graph_.nodes[node]), &rest_, &in_rest_);
      }
    }
    for (NodeEntry head : graph_.heads) {
      rest_.graph().heads.push_back(in_rest_[graph_.entry_id(head)]);
    }
    draws.graph = std::move(draws_.graph());
    source_.graph = std::move(rest_.graph());
    source_.node_workers = std::move(rest_.node_workers());
    return draws;
  }

 private:
  // Marks the drawn entries that the remaining graph reads.
  void FindCrossing() {
    crosses_.assign(graph_.num_entries(), false);
    const auto mark = [&](NodeEntry entry) {
      if (is_drawn_[entry.node]) crosses_[graph_.entry_id(entry)] = true;
    };
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (is_drawn_[node]) continue;
      for (NodeEntry input : graph_.nodes[node].inputs) mark(input);
    }
    for (NodeEntry head : graph_.heads) mark(head);
  }

  // Adds node number `node` to a new graph, whose entries are `copies`.
  void Add(int node, Node copy, GraphBuilder* builder, std::vector<NodeEntry>* copies) {
    for (NodeEntry& input : copy.inputs) input = (*copies)[graph_.entry_id(input)];
    const int num_outputs = copy.num_outputs;
    std::vector<Shape> shapes;
    std::vector<int> dtypes;
    for (int output = 0; output < num_outputs; ++output) {
      shapes.push_back(graph_.shape({node, output}));
      dtypes.push_back(graph_.dtype({node, output}));
    }
    const int added =
        builder->Add(std::move(copy), source_.node_workers[node], shapes, dtypes);
    for (int output = 0; output < num_outputs; ++output) {
      (*copies)[graph_.entry_id({node, output})] = {added, output};
    }
  }

  // Adds a variable to the remaining graph for each output of a drawn node that it reads.
  void AddVariables(int node, std::vector<SavedEntry>* drawn) {
    for (int output = 0; output < graph_.nodes[node].num_outputs; ++output) {
      const int entry = graph_.entry_id({node, output});
      if (!crosses_[entry]) continue;
      Node variable;
      variable.name = graph_.nodes[node].name + "/drawn" + std::to_string(output);
      const int worker = source_.node_workers[node];
      const int added = rest_.Add(std::move(variable), worker, {graph_.shapes[entry]},
                                  {graph_.dtypes[entry]});
      in_rest_[entry] = {added, 0};
      auto& heads = draws_.graph().heads;
      drawn->push_back(
          {rest_.graph().nodes[added].name, static_cast<int>(heads.size()), worker});
      heads.push_back(in_draws_[entry]);
    }
  }

  Partitioned& source_;
  Graph& graph_;
  bool any_ = false;
  std::vector<bool> is_drawn_;       // [node]: belongs to the graph that draws
  std::vector<bool> crosses_;        // [entry]: drawn, and read by the remaining graph
  std::vector<NodeEntry> in_draws_;  // [entry]: its copy
  std::vector<NodeEntry> in_rest_;
  GraphBuilder draws_;
  GraphBuilder rest_;
};

}  // namespace

std::optional<Draws> SplitDraws(Partitioned* partitioned) {
  Splitter splitter(partitioned);
  if (!splitter.FindDrawn()) return std::nullopt;
  return splitter.Run();
}

}  // namespace tofu
