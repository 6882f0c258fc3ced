#include "passes/partition/verify_tiles.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "fetch/fetch_nodes.h"
#include "graph/box.h"
#include "graph/verify_graph.h"
#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

class TileVerifier {
 public:
  TileVerifier(const Graph& graph, int workers, std::string after)
      : graph_(graph), after_(std::move(after)) {
    for (int w = 0; w < workers; ++w) worker_of_.emplace(WorkerGroup(w), w);
  }

  void Nodes() {
    for (const Node& node : graph_.nodes) {
      const auto worker = worker_of_.find(node.group);
      TOFU_CHECK(worker != worker_of_.end())
          << "after " << after_ << ": node " << node.name << " is on no worker";
      workers_.push_back(worker->second);
    }
    const bool has_direct =
        std::any_of(graph_.nodes.begin(), graph_.nodes.end(), IsDirect);
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (has_direct) Crossings(node);
      if (graph_.nodes[node].op == kCopyOp) Copy(node);
      if (graph_.nodes[node].op == kMultiFetchOp) Fetch(node);
    }
  }

  void Variables(const std::vector<PartitionedVariable>& variables) const {
    std::map<std::string, int> numbers;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (graph_.nodes[node].is_variable())
        numbers.emplace(graph_.nodes[node].name, node);
    }
    for (const PartitionedVariable& variable : variables) {
      Cover(variable.name, variable.shape, variable.tiles);
      for (const VariableTile& tile : variable.tiles) {
        // The graph has only the variables that it reads.
        const auto found = numbers.find(tile.name);
        if (found == numbers.end()) continue;
        Tile(variable.name, {found->second, 0}, tile.worker, tile.box, variable.dtype);
      }
    }
  }

  void Heads(const std::vector<PartitionedHead>& heads) const {
    for (const PartitionedHead& head : heads) {
      Cover(head.role, head.shape, head.tiles);
      for (const HeadTile& tile : head.tiles) {
        TOFU_CHECK(tile.head >= 0 && tile.head < static_cast<int>(graph_.heads.size()))
            << "after " << after_ << ": " << head.role << " on worker " << tile.worker
            << " is head " << tile.head << " of " << graph_.heads.size();
        Tile(head.role, graph_.heads[tile.head], tile.worker, tile.box, head.dtype);
      }
    }
  }

 private:
  // Checks that if some nodes read directly, none needs a copy.
  void Crossings(int node) const {
    const Node& n = graph_.nodes[node];
    for (NodeEntry input : n.inputs) {
      TOFU_CHECK(IsDirect(n) || workers_[input.node] == workers_[node])
          << "after " << after_ << ": " << n.name << " reads another worker's "
          << graph_.nodes[input.node].name << " and gets no copy of it";
    }
  }

  void Copy(int node) const {
    const NodeEntry source = graph_.nodes[node].inputs.at(0);
    TOFU_CHECK(graph_.shape({node, 0}) == graph_.shape(source) &&
               graph_.dtype({node, 0}) == graph_.dtype(source))
        << "after " << after_ << ": the copy " << graph_.nodes[node].name
        << " has another shape or dtype than what it copies";
  }

  void Fetch(int node) const {
    const Node& n = graph_.nodes[node];
    const FetchBundle bundle = BundleOf(n);
    TOFU_CHECK(static_cast<int>(bundle.size()) == n.num_outputs &&
               NumInputs(bundle) == static_cast<int>(n.inputs.size()))
        << "after " << after_ << ": the fetch " << n.name
        << " has other inputs or outputs than its specification says";
    auto tile = n.inputs.begin();
    for (int region = 0; region < n.num_outputs; ++region) {
      const MultiFetchSpec& spec = bundle[region];
      TOFU_CHECK(spec.shape == graph_.shape({node, region}) &&
                 spec.dtype == graph_.dtype({node, region}))
          << "after " << after_ << ": the fetch " << n.name
          << " makes another region than its specification says";
      for (size_t i = 0; i < spec.sources.size(); ++i, ++tile) {
        // Tiles are copied as vectors.
        TOFU_CHECK(NumElements(spec.sources[i]) == NumElements(graph_.shape(*tile)) &&
                   spec.dtype == graph_.dtype(*tile))
            << "after " << after_ << ": source " << i << " of the fetch " << n.name
            << " has another shape or dtype than its specification says";
      }
    }
  }

  void Tile(const std::string& tensor, NodeEntry entry, int worker, const Box& box,
            int dtype) const {
    TOFU_CHECK(graph_.shape(entry) == box.Extents() && graph_.dtype(entry) == dtype)
        << "after " << after_ << ": " << graph_.nodes[entry.node].name
        << " has another shape or dtype than its tile of " << tensor;
    TOFU_CHECK(workers_[entry.node] == worker)
        << "after " << after_ << ": " << graph_.nodes[entry.node].name << " is on worker "
        << workers_[entry.node] << ", the tile of " << tensor << " on worker " << worker;
  }

  // Checks that every element is in one tile, or in equal tiles only.
  template <typename TensorTile>
  void Cover(const std::string& tensor, const Shape& shape,
             const std::vector<TensorTile>& tiles) const {
    TOFU_CHECK(tiles.size() == worker_of_.size())
        << "after " << after_ << ": " << tensor << " has " << tiles.size()
        << " tiles for " << worker_of_.size() << " workers";
    std::vector<Box> boxes;
    int64_t covered = 0;
    for (size_t w = 0; w < tiles.size(); ++w) {
      const Box& box = tiles[w].box;
      TOFU_CHECK(tiles[w].worker == static_cast<int>(w) && Contains(WholeBox(shape), box))
          << "after " << after_ << ": tile " << w << " of " << tensor
          << " is on another worker or outside the tensor";
      if (std::find(boxes.begin(), boxes.end(), box) != boxes.end()) continue;
      for (const Box& other : boxes) {
        TOFU_CHECK(Intersect(box, other).Volume() == 0)
            << "after " << after_ << ": tiles of " << tensor << " overlap";
      }
      boxes.push_back(box);
      covered += box.Volume();
    }
    TOFU_CHECK(covered == NumElements(shape))
        << "after " << after_ << ": tiles of " << tensor << " hold " << covered
        << " elements of " << NumElements(shape);
  }

  const Graph& graph_;
  const std::string after_;
  std::unordered_map<Name, int> worker_of_;
  std::vector<int> workers_;  // [node]
};

}  // namespace

void VerifyTiles(const Graph& graph, const std::vector<PartitionedVariable>& variables,
                 const std::vector<PartitionedHead>& heads, int workers,
                 const std::string& after) {
  VerifyGraph(graph, after);
  TileVerifier verifier(graph, workers, after);
  verifier.Nodes();
  verifier.Variables(variables);
  verifier.Heads(heads);
}

}  // namespace tofu
