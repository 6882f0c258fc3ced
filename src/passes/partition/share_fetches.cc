#include "passes/partition/share_fetches.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "base/range_max.h"
#include "fetch/multifetch_spec.h"
#include "fetch/node_names.h"
#include "graph/memory_order.h"

namespace tofu {
namespace {

// The life of a tensor, from the position of its producer to that of its last reader.
struct Life {
  int begin = 0;
  int end = 0;
};

class Sharer {
 public:
  Sharer(int workers, const FetchGraph& in, int64_t spare_bytes)
      : workers_(workers),
        in_(in),
        spare_bytes_(spare_bytes),
        graph_(*in.graph),
        order_(MemoryOrder(graph_)),
        places_(order_.size()),
        replaced_(order_.size(), -1) {
    for (size_t i = 0; i < order_.size(); ++i) places_[order_[i]] = static_cast<int>(i);
    MarkForward();
    FindLives();
    CountAlive();
  }

  std::vector<int64_t> Run() {
    std::vector<int64_t> shared(workers_, 0);
    for (const auto& [gap, place, earlier, later] : Candidates()) {
      if (!Pays(earlier, later)) continue;
      replaced_[later] = earlier;
      shared[worker(later)] += RemoteBytes(later);
    }
    RemoveReplaced();
    return shared;
  }

 private:
  using Candidate = std::tuple<int, int, int, int>;  // gap, place, earlier, later

  int worker(int node) const { return (*in_.node_workers)[node]; }
  int64_t Bytes(int entry) const {
    return NumElements(graph_.shapes[entry]) * DtypeBytes(graph_.dtypes[entry]);
  }

  void MarkForward() {
    forward_.assign(graph_.nodes.size(), false);
    for (int head : in_.outputs) forward_[graph_.heads[head].node] = true;
    for (int node = graph_.num_nodes() - 1; node >= 0; --node) {
      if (!forward_[node]) continue;
      for (NodeEntry input : graph_.nodes[node].inputs) forward_[input.node] = true;
    }
  }

  void FindLives() {
    lives_.resize(graph_.num_entries());
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      for (int i = 0; i < graph_.nodes[node].num_outputs; ++i) {
        lives_[graph_.entry_id({node, i})] = {places_[node], places_[node]};
      }
    }
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      for (NodeEntry input : graph_.nodes[node].inputs) {
        Extend(input, places_[node]);
        // A handle keeps its tile alive.
        const Node& source = graph_.nodes[input.node];
        if (source.op == kPublishOp) Extend(source.inputs[0], places_[node]);
      }
    }
    const int last = graph_.num_nodes() - 1;
    for (NodeEntry head : graph_.heads) Extend(head, last);
  }

  void Extend(NodeEntry entry, int place) {
    int& end = lives_[graph_.entry_id(entry)].end;
    end = std::max(end, place);
  }

  // Counts the bytes alive at each position. Variables always exist and do not count.
  void CountAlive() {
    const int size = graph_.num_nodes();
    std::vector<std::vector<int64_t>> alive(workers_, std::vector<int64_t>(size + 1, 0));
    for (int node = 0; node < size; ++node) {
      if (graph_.nodes[node].is_variable()) continue;
      for (int i = 0; i < graph_.nodes[node].num_outputs; ++i) {
        const int entry = graph_.entry_id({node, i});
        const Life& life = lives_[entry];
        const int begin = life.begin + (WritesOver(node, entry) ? 1 : 0);
        alive[worker(node)][begin] += Bytes(entry);
        alive[worker(node)][life.end + 1] -= Bytes(entry);
      }
    }
    for (int w = 0; w < workers_; ++w) {
      for (int place = 1; place < size; ++place) alive[w][place] += alive[w][place - 1];
      alive[w].resize(size);
      limits_.push_back({0, 0});
      for (int place = 0; place < size; ++place) {
        int64_t& limit = limits_[w][Half(order_[place])];
        limit = std::max(limit, alive[w][place]);
      }
      alive_.emplace_back(alive[w]);
    }
  }

  bool WritesOver(int node, int entry) const {
    if (!in_.in_place[node] || graph_.nodes[node].num_outputs != 1) return false;
    for (NodeEntry input : graph_.nodes[node].inputs) {
      const int source = graph_.entry_id(input);
      if (graph_.nodes[input.node].is_variable()) continue;
      if (lives_[source].end == places_[node] && Bytes(source) == Bytes(entry))
        return true;
    }
    return false;
  }

  // The half of the step that a node is in. With bytes to spare, both halves are one.
  int Half(int node) const { return spare_bytes_ > 0 || forward_[node] ? 0 : 1; }

  // All pairs of consecutive equal fetches, the closest first.
  std::vector<Candidate> Candidates() const {
    std::vector<Candidate> candidates;
    std::map<std::tuple<int, int, std::vector<int>, std::string_view>, int> last;
    for (int node : order_) {
      const Node& n = graph_.nodes[node];
      if (n.op != kMultiFetchOp) continue;
      std::vector<int> inputs;
      for (NodeEntry input : n.inputs) inputs.push_back(graph_.entry_id(input));
      const auto [found, is_new] =
          last.emplace(std::make_tuple(worker(node), Half(node), std::move(inputs),
                                       std::string_view(n.attrs.at(kSpecAttr))),
                       node);
      if (is_new) continue;
      const int earlier = std::exchange(found->second, node);
      const int gap = places_[node] - lives_[graph_.first_entry[earlier]].end;
      candidates.emplace_back(gap, places_[node], earlier, node);
    }
    std::sort(candidates.begin(), candidates.end());
    return candidates;
  }

  // Keeps the region until `later` if the limit allows; returns whether it does.
  bool Pays(int earlier, int later) {
    const int entry = graph_.first_entry[later];
    const int begin = lives_[graph_.first_entry[earlier]].end + 1;
    const int end = lives_[entry].begin - 1;
    RangeMax& alive = alive_[worker(later)];
    const int64_t limit = limits_[worker(later)][Half(later)] + spare_bytes_;
    if (begin <= end && alive.Max(begin, end) + Bytes(entry) > limit) return false;
    alive.Add(begin, end, Bytes(entry));
    return true;
  }

  // The bytes that a fetch reads from other workers. Each source of a fetch is an input:
  // a tile or its handle.
  int64_t RemoteBytes(int fetch) const {
    const Node& node = graph_.nodes[fetch];
    const MultiFetchSpec spec = ReadSpec(node.attrs.at(kSpecAttr));
    int64_t elements = 0;
    for (const TilePiece& piece : spec.pieces) {
      if (piece.source == kNoSource) continue;
      if (worker(node.inputs[piece.source].node) == worker(fetch)) continue;
      elements += NumElements(piece.extents);
    }
    return elements * ElementBytes(spec.dtype);
  }

  // Removes the replaced fetches, and puts the nodes into the order used for counting, in
  // which a shared fetch precedes all its readers.
  void RemoveReplaced() {
    std::vector<int> numbers(graph_.nodes.size(), -1);
    Graph kept;
    std::vector<int> workers;
    for (int node : order_) {
      if (replaced_[node] >= 0) continue;
      numbers[node] = kept.num_nodes();
      for (int i = 0; i < graph_.nodes[node].num_outputs; ++i) {
        const int entry = graph_.entry_id({node, i});
        kept.shapes.push_back(std::move(graph_.shapes[entry]));
        kept.dtypes.push_back(graph_.dtypes[entry]);
      }
      Node moved = std::move(graph_.nodes[node]);
      for (NodeEntry& input : moved.inputs) input.node = numbers[Kept(input.node)];
      kept.nodes.push_back(std::move(moved));
      workers.push_back(worker(node));
    }
    kept.heads = graph_.heads;
    for (NodeEntry& head : kept.heads) head.node = numbers[Kept(head.node)];
    IndexEntries(&kept);
    *in_.graph = std::move(kept);
    *in_.node_workers = std::move(workers);
  }

  int Kept(int node) const {
    while (replaced_[node] >= 0) node = replaced_[node];
    return node;
  }

  const int workers_;
  const FetchGraph& in_;
  const int64_t spare_bytes_;
  Graph& graph_;
  const std::vector<int> order_;
  std::vector<int> places_;                     // [node] in the order
  std::vector<int> replaced_;                   // [node]: the fetch shared, or -1
  std::vector<bool> forward_;                   // [node]
  std::vector<Life> lives_;                     // [entry]
  std::vector<RangeMax> alive_;                 // [worker]: bytes at each position
  std::vector<std::array<int64_t, 2>> limits_;  // [worker][half]
};

}  // namespace

std::vector<int64_t> ShareFetches(int workers, const FetchGraph& in,
                                  int64_t spare_bytes) {
  return Sharer(workers, in, spare_bytes).Run();
}

}  // namespace tofu
