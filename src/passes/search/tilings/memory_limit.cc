#include "passes/search/tilings/memory_limit.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/box.h"
#include "graph/lives/tensor_lives.h"
#include "passes/search/tilings/patterns.h"

namespace tofu {
namespace {

// The input that a node overwrites, if it is an element-wise operator of one output; else
// -1.
int Overwritten(const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
                const TensorLives& lives, int node) {
  const StrategyRow* row = table.row(node);
  const int output = graph.first_entry[node];
  if (row == nullptr || !row->elementwise || graph.nodes[node].num_outputs != 1 ||
      lives.keep[output] != Keep::kUntilRead) {
    return -1;
  }
  const std::vector<int>& dying = lives.dying[node];
  const auto can = [&](int entry) {
    return coarse.tensor_class[entry] == coarse.tensor_class[output] &&
           graph.dtypes[entry] == graph.dtypes[output] &&
           std::find(dying.begin(), dying.end(), entry) != dying.end();
  };
  for (NodeEntry input : graph.nodes[node].inputs) {
    if (can(graph.entry_id(input))) return graph.entry_id(input);
  }
  return -1;
}

constexpr size_t kMaxPatterns = size_t{1} << 14;

// The elements of the largest tile.
int64_t LargestTile(Shape shape, const Cuts& cuts, const std::vector<int>& parts) {
  for (size_t step = 0; step < cuts.size(); ++step) {
    if (!IsCut(cuts[step])) continue;
    int64_t& extent = shape[cuts[step]];
    extent = (extent + parts[step] - 1) / parts[step];
  }
  return NumElements(shape);
}

// The elements of the largest tile under the cuts that make it smallest; 0 if there are
// too many cuts to try.
int64_t SmallestTile(const Shape& shape, const std::vector<int>& parts,
                     const Restrictions& restrictions) {
  bool complete = true;
  const std::vector<Cuts> patterns =
      TensorPatterns(shape, Cuts(parts.size(), kFree), restrictions, false,
                     {parts, 0, {}, kMaxPatterns}, &complete);
  int64_t least = complete ? NumElements(shape) : 0;
  for (const Cuts& cuts : patterns) {
    least = std::min(least, LargestTile(shape, cuts, parts));
  }
  return least;
}

}  // namespace

int64_t TileBytes(const MemoryLimit::Life& life, const Cuts& cuts,
                  const std::vector<int>& parts) {
  if (life.bytes == 0) return 0;
  int64_t bytes =
      life.bytes / NumElements(life.shape) * LargestTile(life.shape, cuts, parts);
  for (size_t step = cuts.size(); step < parts.size(); ++step) bytes /= parts[step];
  return bytes;
}

int64_t MemoryLimit::LeastBytes(const std::vector<int>& parts,
                                const Restrictions& restrictions) const {
  std::map<Shape, int64_t> known;
  return Peak([&](const Life& life) -> int64_t {
    if (life.bytes == 0) return 0;
    const auto [smallest, is_new] = known.try_emplace(life.shape);
    if (is_new) smallest->second = SmallestTile(life.shape, parts, restrictions);
    return life.bytes / NumElements(life.shape) * smallest->second;
  });
}

int64_t MemoryLimit::PeakBytes(const std::vector<Cuts>& tensor_cuts,
                               const std::vector<int>& parts) const {
  return Peak([&](const Life& life) {
    return TileBytes(life, tensor_cuts[life.tensor_class], parts);
  });
}

int64_t MemoryLimit::Peak(const std::function<int64_t(const Life&)>& tile) const {
  std::map<int64_t, int64_t> changes;
  for (const Life& life : lives) {
    const int64_t bytes = tile(life);
    changes[life.begin] += bytes;
    changes[life.end] -= bytes;
  }
  int64_t now = 0;
  int64_t peak = 0;
  for (const auto& [moment, change] : changes) peak = std::max(peak, now += change);
  return peak;
}

MemoryLimit LimitMemory(const Graph& graph, const StrategyTable& table,
                        const CoarseGraph& coarse, int64_t limit_bytes) {
  const TensorLives lives = FindTensorLives(graph);
  const auto count = static_cast<int64_t>(lives.order.size());
  std::vector<int64_t> begin(static_cast<size_t>(graph.num_entries()), 0);
  std::vector<int64_t> end(begin.size(), count);
  for (int64_t moment = 0; moment < count; ++moment) {
    const int node = lives.order[static_cast<size_t>(moment)];
    if (graph.nodes[node].is_variable()) continue;
    for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
      const int entry = graph.entry_id({node, i});
      if (lives.keep[entry] == Keep::kUntilRead) begin[entry] = moment;
    }
    for (int entry : lives.dying[node]) end[entry] = moment + 1;
    const int overwritten = Overwritten(graph, table, coarse, lives, node);
    if (overwritten >= 0) end[overwritten] = moment;
  }
  std::map<std::tuple<int, int64_t, int64_t>, int64_t> bytes;
  for (int entry = 0; entry < graph.num_entries(); ++entry) {
    if (lives.keep[entry] == Keep::kInPlace) continue;
    bytes[{coarse.tensor_class[entry], begin[entry], end[entry]}] +=
        NumElements(graph.shapes[entry]) * DtypeBytes(graph.dtypes[entry]);
  }
  MemoryLimit limit;
  limit.limit_bytes = limit_bytes;
  for (const auto& [life, size] : bytes) {
    const auto [tensor_class, from, to] = life;
    if (from < to) {
      limit.lives.push_back(
          {tensor_class, from, to, size, coarse.tensors[tensor_class].shape});
    }
  }
  return limit;
}

}  // namespace tofu
