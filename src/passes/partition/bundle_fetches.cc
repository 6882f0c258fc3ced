#include "passes/partition/bundle_fetches.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "kernels/fetch_bundle.h"
#include "passes/partition/emit_multifetch.h"

namespace tofu {
namespace {

constexpr int64_t kMaxTiles = 4;

// An executor copies handles between workers, and misreads one in memory that last held a
// tensor in a blocked layout. Tensors of this rank may have one, and an executor reuses
// memory of up to kMatchRange times a tensor's size (tofu.mx.run.executor, which has to
// keep tensors of different sizes apart where a handle could get such memory).
constexpr size_t kMinBlockedRank = 3;
constexpr int64_t kMatchRange = 16;

// How many tiles a handle may have, and not restrict the executor more than one of a
// single tile does.
int64_t MaxTiles(const Graph& graph) {
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
  Bundler(Graph* graph, std::vector<int>* node_workers)
      : graph_(*graph),
        workers_(*node_workers),
        max_tiles_(MaxTiles(*graph)),
        consumers_(graph->nodes.size()),
        bundle_of_(graph->nodes.size(), -1),
        handle_index_(graph->nodes.size(), 0),
        moved_(graph->num_entries()) {}

  void Run() {
    FindConsumers();
    Bundle(kMultiFetchOp);
    // Fetches of one bundle count as one reader.
    for (std::vector<int>& readers : consumers_) {
      for (int& reader : readers) {
        if (bundle_of_[reader] >= 0) reader = bundles_[bundle_of_[reader]].back();
      }
      std::sort(readers.begin(), readers.end());
      readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    }
    Bundle(kPublishOp);
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
    // A head is read by the script, at a time of its own.
    for (NodeEntry head : graph_.heads) consumers_[head.node].clear();
  }

  // Puts every node of an operator into a bundle, with those on its worker that have
  // the same consumers.
  void Bundle(const std::string& op) {
    std::map<std::pair<int, std::vector<int>>, int> known;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (graph_.nodes[node].op != op) continue;
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

  NodeEntry Moved(NodeEntry entry) const { return moved_[graph_.entry_id(entry)]; }

  // A bundle stands where its last node was: behind all of its inputs, and before its
  // consumers, which read that node too.
  void Rewrite() {
    std::vector<int> workers;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      const int bundle = bundle_of_[node];
      if (bundle >= 0 && bundles_[bundle].back() != node) continue;
      const int number = result_.num_nodes();
      if (bundle < 0) {
        Keep(node, number);
      } else if (graph_.nodes[node].op == kPublishOp) {
        Publish(bundles_[bundle], number);
      } else {
        Fetch(bundles_[bundle], number);
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

  // The new entry `to` takes the place of `from`.
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
  const int64_t max_tiles_;
  std::vector<std::vector<int>> consumers_;  // [node], empty for heads
  std::vector<int> bundle_of_;               // [node]: or -1
  std::vector<std::vector<int>> bundles_;    // nodes in order
  std::vector<int> handle_index_;            // [publication]
  std::vector<NodeEntry> moved_;             // [entry]: in the result
  Graph result_;
};

}  // namespace

void BundleFetches(Graph* graph, std::vector<int>* node_workers) {
  Bundler(graph, node_workers).Run();
}

}  // namespace tofu
