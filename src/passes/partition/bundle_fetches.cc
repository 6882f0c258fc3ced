#include "passes/partition/bundle_fetches.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "fetch/fetch_bundle.h"
#include "fetch/node_names.h"

namespace tofu {
namespace {

class Bundler {
 public:
  Bundler(const std::map<int, int>& gradients, Graph* graph,
          std::vector<int>* node_workers)
      : graph_(*graph),
        workers_(*node_workers),
        gradients_(gradients),
        gradient_(graph->nodes.size(), -1),
        consumers_(graph->nodes.size()),
        bundle_of_(graph->nodes.size(), -1),
        moved_(graph->num_entries(), NodeEntry{-1, 0}) {}

  void Run() {
    FindConsumers();
    Bundle();
    BundleGradients();
    Rewrite();
  }

 private:
  void FindConsumers() {
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      for (NodeEntry input : graph_.nodes[node].inputs) {
        std::vector<int>& readers = consumers_[input.node];
        if (readers.empty() || readers.back() != node) readers.push_back(node);
      }
    }
    for (const auto& [head, bundle] : gradients_) {
      const int node = graph_.heads[head].node;
      const bool is_fetch = graph_.nodes[node].op == kMultiFetchOp;
      if (is_fetch && consumers_[node].empty()) gradient_[node] = bundle;
    }
    // The script reads a head, at any time.
    for (size_t head = 0; head < graph_.heads.size(); ++head) {
      const int node = graph_.heads[head].node;
      consumers_[node].clear();
      if (gradients_.count(static_cast<int>(head)) == 0) gradient_[node] = -1;
    }
  }

  // Bundles the fetches of a worker that have the same consumers.
  void Bundle() {
    std::map<std::pair<int, std::vector<int>>, int> known;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (graph_.nodes[node].op != kMultiFetchOp || gradient_[node] >= 0) continue;
      const int next = static_cast<int>(bundles_.size());
      bundle_of_[node] = next;
      if (!consumers_[node].empty()) {
        bundle_of_[node] =
            known.emplace(std::make_pair(workers_[node], consumers_[node]), next)
                .first->second;
      }
      if (bundle_of_[node] == next) bundles_.emplace_back();
      bundles_[bundle_of_[node]].push_back(node);
    }
  }

  // Nothing waits for gradients before the end of the step.
  void BundleGradients() {
    std::map<std::pair<int, int>, int> known;  // by worker and the caller's number
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (gradient_[node] < 0) continue;
      const int next = static_cast<int>(bundles_.size());
      const auto [found, is_new] =
          known.emplace(std::make_pair(workers_[node], gradient_[node]), next);
      if (is_new) bundles_.emplace_back();
      bundle_of_[node] = found->second;
      bundles_[found->second].push_back(node);
    }
  }

  NodeEntry Moved(NodeEntry entry) const { return moved_[graph_.entry_id(entry)]; }

  // Writes the new graph. A bundle takes the place of its last node: behind all of its
  // inputs, and before its consumers, which read that node too.
  void Rewrite() {
    std::vector<int> workers;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      const int bundle = bundle_of_[node];
      if (bundle < 0) {
        Keep(node, result_.num_nodes());
      } else if (bundles_[bundle].back() == node) {
        Fetch(bundles_[bundle], result_.num_nodes());
      } else {
        continue;
      }
      workers.push_back(workers_[node]);
    }
    for (NodeEntry head : graph_.heads) result_.heads.push_back(Moved(head));
    result_.head_roles = std::move(graph_.head_roles);
    IndexEntries(&result_);
    graph_ = std::move(result_);
    workers_ = std::move(workers);
  }

  void Keep(int node, int number) {
    for (int i = 0; i < graph_.nodes[node].num_outputs; ++i) {
      Output({node, i}, {number, i});
    }
    for (NodeEntry& input : graph_.nodes[node].inputs) input = Moved(input);
    result_.nodes.push_back(std::move(graph_.nodes[node]));
  }

  // Replaces `from` by the new entry `to`.
  void Output(NodeEntry from, NodeEntry to) {
    const int entry = graph_.entry_id(from);
    moved_[entry] = to;
    result_.shapes.push_back(graph_.shapes[entry]);
    result_.dtypes.push_back(graph_.dtypes[entry]);
  }

  void Fetch(const std::vector<int>& members, int number) {
    std::vector<std::string> specs;
    std::vector<NodeEntry> tiles;
    for (size_t region = 0; region < members.size(); ++region) {
      const Node& fetch = graph_.nodes[members[region]];
      specs.push_back(fetch.attrs.at(kSpecAttr));
      for (NodeEntry input : fetch.inputs) tiles.push_back(Moved(input));
      Output({members[region], 0}, {number, static_cast<int>(region)});
    }
    Node fetch = std::move(graph_.nodes[members[0]]);
    fetch.num_outputs = static_cast<int>(members.size());
    fetch.attrs[kSpecAttr] = JoinSpecs(specs);
    fetch.attrs[kLabelAttr] = fetch.name;
    fetch.inputs = std::move(tiles);
    result_.nodes.push_back(std::move(fetch));
  }

  Graph& graph_;
  std::vector<int>& workers_;
  const std::map<int, int>& gradients_;
  std::vector<int> gradient_;  // [node]: the bundle of a fetch that only the script reads
  std::vector<std::vector<int>> consumers_;  // [node], empty for heads
  std::vector<int> bundle_of_;               // [node]: its bundle, or -1
  std::vector<std::vector<int>> bundles_;    // nodes in order
  std::vector<NodeEntry> moved_;             // [entry]: in the result
  Graph result_;
};

}  // namespace

void BundleFetches(const std::map<int, int>& gradients, Graph* graph,
                   std::vector<int>* node_workers) {
  Bundler(gradients, graph, node_workers).Run();
}

}  // namespace tofu
