#include "passes/partition/bundle_fetches.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "fetch/fetch_bundle.h"
#include "fetch/fetch_nodes.h"

namespace tofu {
namespace {

// The most parameters of one publication. It waits for the last of their updates, so with
// one publication for all, the first fetches of a step would wait for all updates.
constexpr size_t kMaxParameters = 16;

constexpr int64_t kMaxTiles = 4;

// The most bytes of gradients that are fetched together. Their terms live until then.
constexpr int64_t kMaxGradientBytes = 1 << 14;

// An executor that copies handles between workers misreads a handle in memory that last
// held a tensor in a blocked layout. Tensors of this rank may have such a layout, and an
// executor reuses memory of up to kMatchRange times a tensor's size (tofu.mx.run.executor
// keeps tensors of different sizes apart if a handle could get such memory).
constexpr size_t kMinBlockedRank = 3;
constexpr int64_t kMatchRange = 16;

bool ReadsHandlesDirectly(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.op == kMultiFetchOp && IsDirect(node);
  });
}

// The most tiles that a handle may have without restricting the executor more than a
// handle of a single tile.
int64_t MaxTiles(const Graph& graph) {
  if (ReadsHandlesDirectly(graph)) return std::numeric_limits<int64_t>::max();
  int64_t smallest = kMaxTiles * kMatchRange + 1;
  for (const Shape& shape : graph.shapes) {
    const int64_t size = NumElements(shape);
    if (shape.size() >= kMinBlockedRank && size > 1) smallest = std::min(smallest, size);
  }
  const int64_t tiles =
      smallest <= kMatchRange ? smallest - 1 : (smallest - 1) / kMatchRange;
  return std::min(kMaxTiles, tiles);
}

class Bundler {
 public:
  Bundler(const std::set<std::string>& parameters, const std::set<int>& gradients,
          Graph* graph, std::vector<int>* node_workers)
      : graph_(*graph),
        workers_(*node_workers),
        gradients_(gradients),
        max_tiles_(MaxTiles(*graph)),
        is_parameter_(graph->nodes.size(), false),
        is_gradient_(graph->nodes.size(), false),
        consumers_(graph->nodes.size()),
        bundle_of_(graph->nodes.size(), -1),
        handle_index_(graph->nodes.size(), 0),
        moved_(graph->num_entries(), NodeEntry{-1, 0}) {
    if (!ReadsHandlesDirectly(*graph)) return;
    for (int node = 0; node < graph->num_nodes(); ++node) {
      const Node& n = graph->nodes[node];
      is_parameter_[node] = n.is_variable() && parameters.count(n.name) > 0;
    }
  }

  void Run() {
    FindConsumers();
    Bundle(kMultiFetchOp);
    BundleGradients();
    // Fetches of one bundle count as one reader.
    for (std::vector<int>& readers : consumers_) {
      for (int& reader : readers) {
        if (bundle_of_[reader] >= 0) reader = bundles_[bundle_of_[reader]].back();
      }
      std::sort(readers.begin(), readers.end());
      readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    }
    Bundle(kPublishOp);
    BundleParameters();
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
    for (int head : gradients_) {
      const int node = graph_.heads[head].node;
      is_gradient_[node] =
          graph_.nodes[node].op == kMultiFetchOp && consumers_[node].empty();
    }
    // The script reads a head, at any time.
    for (size_t head = 0; head < graph_.heads.size(); ++head) {
      const int node = graph_.heads[head].node;
      consumers_[node].clear();
      if (gradients_.count(static_cast<int>(head)) == 0) is_gradient_[node] = false;
    }
  }

  // Bundles the nodes of one operator that are on the same worker and have the same
  // consumers.
  void Bundle(const std::string& op) {
    std::map<std::pair<int, std::vector<int>>, int> known;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (graph_.nodes[node].op != op || is_gradient_[node] || PublishesParameter(node)) {
        continue;
      }
      const int next = static_cast<int>(bundles_.size());
      bundle_of_[node] = next;
      if (!consumers_[node].empty()) {
        int& bundle =
            known.emplace(std::make_pair(workers_[node], consumers_[node]), next)
                .first->second;
        const bool is_full = op == kPublishOp && bundle != next &&
                             static_cast<int64_t>(bundles_[bundle].size()) == max_tiles_;
        if (is_full) bundle = next;
        bundle_of_[node] = bundle;
      }
      if (bundle_of_[node] == next) bundles_.emplace_back();
      bundles_[bundle_of_[node]].push_back(node);
    }
  }

  // Bundles the fetches of a worker's small gradients, or of gradients whose terms the
  // same nodes make: nothing waits for them before the end of the step.
  void BundleGradients() {
    struct Open {
      int bundle = -1;
      int64_t bytes = 0;
      std::set<int> sources;  // of its last fetch
    };
    std::map<int, Open> open;  // by worker
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (!is_gradient_[node]) continue;
      Open& last = open[workers_[node]];
      std::set<int> sources;
      for (NodeEntry input : graph_.nodes[node].inputs) sources.insert(Source(input));
      const int64_t bytes =
          NumElements(graph_.shape({node, 0})) * DtypeBytes(graph_.dtype({node, 0}));
      const bool joins = last.bundle >= 0 && (last.bytes + bytes <= kMaxGradientBytes ||
                                              last.sources == sources);
      if (!joins) {
        last = {static_cast<int>(bundles_.size()), 0, {}};
        bundles_.emplace_back();
      }
      last.bytes += bytes;
      last.sources = std::move(sources);
      bundle_of_[node] = last.bundle;
      bundles_[last.bundle].push_back(node);
    }
  }

  // The node that makes the tile of an input, which may be its handle.
  int Source(NodeEntry input) const {
    const Node& node = graph_.nodes[input.node];
    return node.op == kPublishOp ? node.inputs[0].node : input.node;
  }

  bool PublishesParameter(int node) const {
    const Node& n = graph_.nodes[node];
    return n.op == kPublishOp && is_parameter_[n.inputs[0].node];
  }

  void BundleParameters() {
    std::map<int, int> open;  // worker -> the bundle that takes its next parameter
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (!PublishesParameter(node)) continue;
      const int next = static_cast<int>(bundles_.size());
      int& bundle = open.emplace(workers_[node], next).first->second;
      if (bundle != next && bundles_[bundle].size() == kMaxParameters) bundle = next;
      if (bundle == next) bundles_.emplace_back();
      bundles_[bundle].push_back(node);
      bundle_of_[node] = bundle;
    }
  }

  NodeEntry Moved(NodeEntry entry) const { return moved_[graph_.entry_id(entry)]; }

  // Writes the new graph. A bundle takes the place of its last node: behind all of its
  // inputs, and before its consumers, which read that node too. A bundle of parameters,
  // whose consumers differ, takes the place of its first node, behind all parameters.
  void Rewrite() {
    std::vector<int> workers;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      const int bundle = bundle_of_[node];
      if (bundle < 0) {
        if (is_parameter_[node] && Moved({node, 0}).node >= 0) continue;
        Keep(node, result_.num_nodes());
      } else if (PublishesParameter(node)) {
        if (bundles_[bundle].front() != node) continue;
        for (int member : bundles_[bundle]) {
          const NodeEntry parameter = graph_.nodes[member].inputs[0];
          if (Moved(parameter).node >= 0) continue;
          Keep(parameter.node, result_.num_nodes());
          workers.push_back(workers_[parameter.node]);
        }
        Publish(bundles_[bundle], result_.num_nodes());
      } else if (bundles_[bundle].back() != node) {
        continue;
      } else if (graph_.nodes[node].op == kPublishOp) {
        Publish(bundles_[bundle], result_.num_nodes());
      } else {
        Fetch(bundles_[bundle], result_.num_nodes());
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

  void Publish(const std::vector<int>& members, int number) {
    Node publish = std::move(graph_.nodes[members[0]]);
    publish.inputs = {Moved(publish.inputs[0])};
    for (size_t i = 1; i < members.size(); ++i) {
      publish.inputs.push_back(Moved(graph_.nodes[members[i]].inputs[0]));
    }
    for (size_t i = 0; i < members.size(); ++i) {
      handle_index_[members[i]] = static_cast<int>(i);
      moved_[graph_.entry_id({members[i], 0})] = {number, 0};
    }
    if (members.size() > 1) publish.attrs[kNumTilesAttr] = std::to_string(members.size());
    result_.nodes.push_back(std::move(publish));
    result_.shapes.push_back({static_cast<int64_t>(members.size())});
    result_.dtypes.push_back(kHandleDtype);
  }

  void Fetch(const std::vector<int>& members, int number) {
    std::vector<std::string> specs;
    std::vector<HandleElement> remote;
    std::vector<int> handles;  // publications of the new graph
    std::vector<NodeEntry> local;
    for (size_t region = 0; region < members.size(); ++region) {
      const Node& fetch = graph_.nodes[members[region]];
      specs.push_back(fetch.attrs.at(kSpecAttr));
      for (NodeEntry input : fetch.inputs) {
        const NodeEntry source = Moved(input);
        if (result_.nodes[source.node].op != kPublishOp) {
          local.push_back(source);
          continue;
        }
        const auto found = std::find(handles.begin(), handles.end(), source.node);
        remote.push_back({static_cast<int>(found - handles.begin()),
                          handle_index_[input.node], workers_[input.node]});
        if (found == handles.end()) handles.push_back(source.node);
      }
      Output({members[region], 0}, {number, static_cast<int>(region)});
    }
    result_.shapes.push_back({1});
    result_.dtypes.push_back(kHandleDtype);
    Node fetch = std::move(graph_.nodes[members[0]]);
    fetch.num_outputs = static_cast<int>(members.size()) + 1;
    fetch.attrs[kSpecAttr] = JoinSpecs(specs);
    fetch.attrs[kLabelAttr] = fetch.name;
    const std::string text = WriteHandles(remote);
    if (!text.empty()) fetch.attrs[kHandlesAttr] = text;
    fetch.inputs.clear();
    for (int handle : handles) fetch.inputs.push_back({handle, 0});
    fetch.inputs.insert(fetch.inputs.end(), local.begin(), local.end());
    result_.nodes.push_back(std::move(fetch));
  }

  Graph& graph_;
  std::vector<int>& workers_;
  const std::set<int>& gradients_;
  const int64_t max_tiles_;
  std::vector<bool> is_parameter_;           // [node]: a tile that is published early
  std::vector<bool> is_gradient_;            // [node]: a fetch that only the script reads
  std::vector<std::vector<int>> consumers_;  // [node], empty for heads
  std::vector<int> bundle_of_;               // [node]: its bundle, or -1
  std::vector<std::vector<int>> bundles_;    // nodes in order
  std::vector<int> handle_index_;            // [publication]
  std::vector<NodeEntry> moved_;             // [entry]: in the result
  Graph result_;
};

}  // namespace

void BundleFetches(const std::set<std::string>& parameters,
                   const std::set<int>& gradients, Graph* graph,
                   std::vector<int>* node_workers) {
  Bundler(parameters, gradients, graph, node_workers).Run();
}

}  // namespace tofu
