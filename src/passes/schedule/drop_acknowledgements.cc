#include "passes/schedule/drop_acknowledgements.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/range_max.h"
#include "fetch/fetch_nodes.h"
#include "passes/partition/graph_builder.h"
#include "passes/partition/partitioned.h"

namespace tofu {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();

// Tiles larger than the worker's peak over this do not live longer: they would leave gaps
// between the blocks that an executor's planner reuses. With 1/100 a worker of
// WResNet-152-10 needs 0.2% more memory than without the pass, with 1/150 0.05%; with
// 1/300 RNN-6-4K keeps more than twice as many acknowledgements.
constexpr int64_t kLongLived = 150;

// Tiles that are published together, and the nodes that their retirement waits for.
struct Publication {
  std::vector<NodeEntry> tiles;
  NodeEntry handle;
  std::string retirement;    // the name of its node
  std::vector<int> readers;  // fetches, on any worker
  std::vector<int> tokens;   // later fetches on the same worker
  bool is_direct = false;    // the retirement reads acknowledgements in place
  bool lives_on = false;     // the tiles live to the end of the phase
};

class Dropper {
 public:
  // `temporary`: variables whose memory is free after their last reader; others stay.
  Dropper(int workers, const std::set<std::string>& temporary, Graph* graph)
      : num_workers_(workers),
        temporary_(temporary),
        graph_(*graph),
        workers_(NodeWorkers(*graph, workers)) {
    FindPublications();
    FindEnds();
    FindFirstFetches();
    CountAlive();
  }

  // Returns by how many the graph's heads have changed: a negative number, or 0.
  int Run() {
    for (int number : ByCost()) Wait(&publications_[number]);
    return Rewrite();
  }

 private:
  bool IsRetirement(int node) const { return graph_.nodes[node].op == kRetireOp; }
  int64_t Bytes(int entry) const {
    return NumElements(graph_.shapes[entry]) * DtypeBytes(graph_.dtypes[entry]);
  }
  int last() const { return graph_.num_nodes() - 1; }

  void FindPublications() {
    for (NodeEntry head : graph_.heads) {
      if (!IsRetirement(head.node)) continue;
      const Node& node = graph_.nodes[head.node];
      const auto handle = std::find_if(
          node.inputs.begin(), node.inputs.end(),
          [&](NodeEntry input) { return graph_.nodes[input.node].op == kPublishOp; });
      Publication publication{
          {node.inputs.begin(), handle}, *handle, node.name, {}, {}, IsDirect(node)};
      for (auto reader = handle + 1; reader != node.inputs.end(); ++reader) {
        publication.readers.push_back(reader->node);
      }
      publications_.push_back(std::move(publication));
    }
  }

  // Finds the node after which every entry's memory is free, apart from retirements,
  // which follow the last reader.
  void FindEnds() {
    ends_.assign(graph_.num_entries(), 0);
    const auto extend = [&](NodeEntry entry, int node) {
      int& end = ends_[graph_.entry_id(entry)];
      end = std::max(end, node);
    };
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (IsRetirement(node)) continue;
      for (int i = 0; i < graph_.nodes[node].num_outputs; ++i) extend({node, i}, node);
      for (NodeEntry input : graph_.nodes[node].inputs) extend(input, node);
      const std::string& name = graph_.nodes[node].name;
      if (graph_.nodes[node].is_variable() && temporary_.count(name) == 0) {
        extend({node, 0}, last());
      }
    }
    for (NodeEntry head : graph_.heads) extend(head, last());
    for (const Publication& publication : publications_) {
      for (NodeEntry tile : publication.tiles) {
        for (int reader : publication.readers) extend(tile, reader);
      }
    }
  }

  // Finds, for each node and worker, the worker's first fetch that can only run after the
  // node, or is the node.
  void FindFirstFetches() {
    first_fetches_.assign(graph_.nodes.size() * num_workers_, kNever);
    for (int node = last(); node >= 0; --node) {
      if (IsRetirement(node)) continue;
      if (graph_.nodes[node].op == kMultiFetchOp) FirstFetch(node, workers_[node]) = node;
      for (NodeEntry input : graph_.nodes[node].inputs) {
        for (int w = 0; w < num_workers_; ++w) {
          int& first = FirstFetch(input.node, w);
          first = std::min(first, FirstFetch(node, w));
        }
      }
    }
  }

  int& FirstFetch(int node, int worker) {
    return first_fetches_[static_cast<size_t>(node) * num_workers_ + worker];
  }

  void CountAlive() {
    const size_t size = graph_.nodes.size();
    std::vector<std::vector<int64_t>> alive(num_workers_,
                                            std::vector<int64_t>(size + 1, 0));
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      const Node& n = graph_.nodes[node];
      const bool is_temporary = n.is_variable() && temporary_.count(n.name) > 0;
      if (IsRetirement(node) || (n.is_variable() && !is_temporary)) continue;
      for (int i = 0; i < n.num_outputs; ++i) {
        const int entry = graph_.entry_id({node, i});
        // A variable's memory is in use from the beginning.
        alive[workers_[node]][is_temporary ? 0 : node] += Bytes(entry);
        alive[workers_[node]][ends_[entry] + 1] -= Bytes(entry);
      }
    }
    for (std::vector<int64_t>& bytes : alive) {
      for (size_t i = 1; i <= size; ++i) bytes[i] += bytes[i - 1];
      bytes.resize(size);
      alive_.emplace_back(bytes);
      limits_.push_back(alive_.back().Max(0, last()));
    }
  }

  // Publications by the cost of dropping their acknowledgements, bytes times nodes.
  std::vector<int> ByCost() {
    std::vector<std::pair<int64_t, int>> costs;
    for (size_t i = 0; i < publications_.size(); ++i) {
      int64_t cost = 0;
      const int late = LastToken(publications_[i]);
      for (NodeEntry tile : publications_[i].tiles) {
        const int end = ends_[graph_.entry_id(tile)];
        cost += std::max(late - end, 0) * Bytes(graph_.entry_id(tile));
      }
      costs.emplace_back(cost, i);
    }
    std::sort(costs.begin(), costs.end());
    std::vector<int> order;
    order.reserve(costs.size());
    for (const auto& [cost, number] : costs) order.push_back(number);
    return order;
  }

  int worker(const Publication& publication) const {
    return workers_[publication.handle.node];
  }

  // The last fetch that replaces acknowledgements, or -1 if none does.
  int LastToken(const Publication& publication) {
    int late = -1;
    for (int reader : publication.readers) {
      const int token = FirstFetch(reader, worker(publication));
      if (token != kNever) late = std::max(late, token);
    }
    return late;
  }

  // Lets the tiles live until `late`, unless that needs too much memory. Returns the node
  // until which all of them live.
  int Extend(const Publication& publication, int late) {
    RangeMax& alive = alive_[worker(publication)];
    const int64_t limit = limits_[worker(publication)];
    int common = last();
    for (NodeEntry tile : publication.tiles) {
      int& end = ends_[graph_.entry_id(tile)];
      const int64_t bytes = Bytes(graph_.entry_id(tile));
      if (late > end && bytes <= limit / kLongLived &&
          alive.Max(end + 1, late) + bytes <= limit) {
        alive.Add(end + 1, late, bytes);
        end = late;
      }
      common = std::min(common, end);
    }
    return common;
  }

  // Replaces acknowledgements by fetches until which the tiles may live.
  void Wait(Publication* publication) {
    const int end = Extend(*publication, LastToken(*publication));
    publication->lives_on = end == last();
    std::vector<int> remaining;
    for (int reader : publication->readers) {
      const int token = FirstFetch(reader, worker(*publication));
      (token <= end ? publication->tokens : remaining)
          .push_back(token <= end ? token : reader);
    }
    publication->readers = std::move(remaining);
    std::vector<int>& tokens = publication->tokens;
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  }

  // Publications by the retirement that they share.
  std::vector<std::vector<int>> Groups() const {
    std::vector<std::vector<int>> groups;
    std::map<std::pair<int, std::vector<int>>, size_t> known;
    for (size_t i = 0; i < publications_.size(); ++i) {
      const Publication& publication = publications_[i];
      size_t group = groups.size();
      if (publication.lives_on) {
        group =
            known.emplace(std::make_pair(worker(publication), std::vector<int>()), group)
                .first->second;
      } else if (publication.readers.empty()) {
        group =
            known.emplace(std::make_pair(worker(publication), publication.tokens), group)
                .first->second;
      }
      if (group == groups.size()) groups.emplace_back();
      groups[group].push_back(static_cast<int>(i));
    }
    return groups;
  }

  Node Retirement(const std::vector<int>& group) const {
    const Publication& first = publications_[group[0]];
    Node node;
    node.op = kRetireOp;
    node.name = first.retirement;
    node.group = WorkerGroup(worker(first));
    if (first.is_direct) node.attrs[kDirectAttr] = "1";
    std::set<int> fetches;
    for (int i : group) {
      const Publication& publication = publications_[i];
      node.inputs.insert(node.inputs.end(), publication.tiles.begin(),
                         publication.tiles.end());
      fetches.insert(publication.readers.begin(), publication.readers.end());
      fetches.insert(publication.tokens.begin(), publication.tokens.end());
    }
    node.attrs[kNumTilesAttr] = std::to_string(node.inputs.size());
    for (int i : group) node.inputs.push_back(publications_[i].handle);
    for (int fetch : fetches) node.inputs.push_back(Acknowledgement(graph_, fetch));
    node.attrs[kNumArgsAttr] = std::to_string(node.inputs.size());
    return node;
  }

  int Rewrite() {
    std::vector<Node> retirements;
    for (const std::vector<int>& group : Groups()) {
      retirements.push_back(Retirement(group));
    }
    // An executor orders nodes by the first head that needs them.
    const auto last_input = [](const Node& node) {
      int last = 0;
      for (NodeEntry input : node.inputs) last = std::max(last, input.node);
      return last;
    };
    std::stable_sort(
        retirements.begin(), retirements.end(),
        [&](const Node& a, const Node& b) { return last_input(a) < last_input(b); });
    Graph result;
    std::vector<int> numbers(graph_.nodes.size(), -1);
    const auto moved = [&](NodeEntry entry) {
      return NodeEntry{numbers[entry.node], entry.index};
    };
    for (int number = 0; number < graph_.num_nodes(); ++number) {
      if (IsRetirement(number)) continue;
      numbers[number] = result.num_nodes();
      Node node = std::move(graph_.nodes[number]);
      for (NodeEntry& input : node.inputs) input = moved(input);
      for (int i = 0; i < node.num_outputs; ++i) {
        const int entry = graph_.entry_id({number, i});
        result.shapes.push_back(std::move(graph_.shapes[entry]));
        result.dtypes.push_back(graph_.dtypes[entry]);
      }
      result.nodes.push_back(std::move(node));
    }
    for (Node& node : retirements) {
      for (NodeEntry& input : node.inputs) input = moved(input);
      result.heads.push_back({result.num_nodes(), 0});
      result.nodes.push_back(std::move(node));
      result.shapes.push_back({1});
      result.dtypes.push_back(kHandleDtype);
    }
    for (NodeEntry head : graph_.heads) {
      if (numbers[head.node] >= 0) result.heads.push_back(moved(head));
    }
    IndexEntries(&result);
    graph_ = std::move(result);
    return static_cast<int>(retirements.size()) - static_cast<int>(publications_.size());
  }

  const int num_workers_;
  const std::set<std::string>& temporary_;
  Graph& graph_;
  const std::vector<int> workers_;  // [node]
  std::vector<Publication> publications_;
  std::vector<int> ends_;           // [entry]: the last node that needs it
  std::vector<int> first_fetches_;  // [node][worker], see FindFirstFetches
  std::vector<RangeMax> alive_;     // [worker]: bytes at every node
  std::vector<int64_t> limits_;     // [worker]
};

}  // namespace

void DropAcknowledgements(Phases* phases) {
  const int forward = Dropper(phases->workers, {}, &phases->forward.graph).Run();
  ShiftHeads(forward, &phases->forward.heads);
  std::set<std::string> saved;
  for (SavedEntry& entry : phases->saved) {
    entry.forward_head += forward;
    saved.insert(entry.name);
  }
  if (!phases->backward) return;
  const int backward = Dropper(phases->workers, saved, &phases->backward->graph).Run();
  ShiftHeads(backward, &phases->backward->heads);
}

}  // namespace tofu
