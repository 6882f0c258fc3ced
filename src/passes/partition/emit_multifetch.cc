#include "passes/partition/emit_multifetch.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "fetch/multifetch_spec.h"
#include "fetch/node_names.h"

namespace tofu {
namespace {

// The most bytes of a tile that is copied rather than published: a publication needs a
// retirement, and two operators cost more than a copy.
constexpr int64_t kSmallBytes = 16 << 10;

// The most dimensions of a tile that a fetch on a CPU reads through a view
// (remote_views.h): each view of a larger one would leak memory.
constexpr size_t kMaxViewedRank = 4;

Combine CombineOf(Reducer reduce) {
  switch (reduce) {
    case Reducer::kLogSumExp:
      return Combine::kLogSumExp;
    case Reducer::kMax:
      return Combine::kMax;
    case Reducer::kMin:
      return Combine::kMin;
    case Reducer::kProd:
      return Combine::kProd;
    case Reducer::kSum:
      break;
  }
  return Combine::kSum;
}

// The workers that hold the pieces, the reader itself last.
std::vector<int> SourceWorkers(const FetchSpec& spec) {
  std::vector<int> workers;
  bool is_local = false;
  for (const FetchPiece& piece : spec.pieces) {
    if (piece.source == kFill) continue;
    if (piece.source == spec.worker) {
      is_local = true;
    } else if (std::find(workers.begin(), workers.end(), piece.source) == workers.end()) {
      workers.push_back(piece.source);
    }
  }
  if (is_local) workers.push_back(spec.worker);
  return workers;
}

// `num_remote`: the number of workers, from the first on, that are read through a handle.
MultiFetchSpec KernelSpec(const FetchSpec& spec, const std::vector<int>& workers,
                          const std::vector<Shape>& shapes, int num_remote, int dtype) {
  MultiFetchSpec kernel;
  kernel.dtype = dtype;
  kernel.shape = spec.region.Extents();
  kernel.sources = shapes;
  kernel.num_remote = num_remote;
  kernel.num_terms = spec.num_terms;
  kernel.reduce = CombineOf(spec.reduce);
  kernel.fill = std::strtod(spec.fill.c_str(), nullptr);
  for (const FetchPiece& piece : spec.pieces) {
    TilePiece tile;
    tile.to = piece.to.begin;
    tile.extents = piece.to.Extents();
    tile.term = piece.term;
    if (piece.source != kFill) {
      const auto found = std::find(workers.begin(), workers.end(), piece.source);
      tile.source = static_cast<int>(found - workers.begin());
      tile.from = piece.from.begin;
    }
    kernel.pieces.push_back(std::move(tile));
  }
  return kernel;
}

}  // namespace

NodeEntry MultiFetchEmitter::Emit(const FetchSpec& spec,
                                  const std::vector<NodeEntry>& entries, int dtype,
                                  const std::string& name) {
  Shape shape = spec.region.Extents();
  for (int64_t& extent : shape) extent = std::max<int64_t>(extent, 0);
  std::vector<int> workers = SourceWorkers(spec);
  if (workers.empty()) {
    return builder_.Fill(name + "/fill", spec.worker, shape, dtype, spec.fill);
  }
  if (spec.pieces.size() == 1 && workers[0] == spec.worker &&
      spec.pieces[0].from == WholeBox(builder_.shape(entries[spec.worker]))) {
    return entries[spec.worker];
  }
  std::vector<NodeEntry> tiles = entries;
  for (int worker : workers) {
    if (worker != spec.worker) tiles[worker] = Readable(entries[worker]);
  }
  const auto by_handle = [&](int worker) {
    return worker != spec.worker && !IsReadDirectly(tiles[worker]);
  };
  // Handles come first.
  std::stable_sort(workers.begin(), workers.end(),
                   [&](int a, int b) { return by_handle(a) > by_handle(b); });
  std::vector<NodeEntry> inputs;
  std::vector<Shape> shapes;
  int num_remote = 0;
  for (int worker : workers) {
    shapes.push_back(builder_.shape(tiles[worker]));
    if (by_handle(worker)) ++num_remote;
    inputs.push_back(by_handle(worker) ? Handle(tiles[worker]) : tiles[worker]);
  }
  return Fetch(KernelSpec(spec, workers, shapes, num_remote, dtype), std::move(inputs),
               spec.worker, name);
}

NodeEntry MultiFetchEmitter::Fetch(const MultiFetchSpec& spec,
                                   std::vector<NodeEntry> inputs, int worker,
                                   const std::string& name) {
  Node fetch;
  fetch.op = kMultiFetchOp;
  fetch.name = name + "/fetch";
  fetch.num_outputs = 2;
  fetch.inputs = std::move(inputs);
  fetch.attrs[kSpecAttr] = WriteSpec(spec);
  if (crossing_ != Crossing::kCopies) fetch.attrs[kDirectAttr] = "1";
  Shape shape = spec.shape;
  for (int64_t& extent : shape) extent = std::max<int64_t>(extent, 0);
  return {
      builder_.Add(std::move(fetch), worker, {shape, {1}}, {spec.dtype, kHandleDtype}),
      0};
}

NodeEntry MultiFetchEmitter::Readable(NodeEntry tile) {
  const int64_t bytes =
      NumElements(builder_.shape(tile)) * DtypeBytes(builder_.dtype(tile));
  if (crossing_ != Crossing::kPlainTiles || IsReadDirectly(tile) || bytes > kSmallBytes ||
      builder_.shape(tile).size() > kMaxViewedRank) {
    return tile;
  }
  if (builder_.graph().nodes[tile.node].is_variable()) return tile;
  const auto [found, added] =
      copies_.emplace(std::make_pair(tile.node, tile.index), NodeEntry{});
  if (added) {
    const int worker = builder_.worker(tile);
    const Box box = WholeBox(builder_.shape(tile));
    const FetchSpec spec{worker, box, {{worker, box, box}}};
    found->second = Fetch(
        KernelSpec(spec, {worker}, {builder_.shape(tile)}, 0, builder_.dtype(tile)),
        {tile}, worker,
        builder_.graph().nodes[tile.node].name + "/plain" + std::to_string(tile.index));
  }
  return found->second;
}

bool MultiFetchEmitter::IsReadDirectly(NodeEntry tile) const {
  if (crossing_ != Crossing::kPlainTiles) return crossing_ == Crossing::kTiles;
  // In prediction, oneDNN's operators convert their weights to layouts of their own.
  const Node& node = builder_.graph().nodes[tile.node];
  return !node.is_variable() && builder_.shape(tile).size() <= kMaxViewedRank &&
         (node.op == kMultiFetchOp || LeavesPlain(node.op, tile.index) ||
          IsSurelyPlain(builder_.shape(tile), builder_.dtype(tile)));
}

NodeEntry MultiFetchEmitter::Handle(NodeEntry tile) {
  const auto [found, added] =
      handles_.emplace(std::make_pair(tile.node, tile.index), NodeEntry{});
  if (added) {
    Node publish;
    publish.op = kPublishOp;
    publish.name =
        builder_.graph().nodes[tile.node].name + "/publish" + std::to_string(tile.index);
    publish.inputs = {tile};
    found->second = {
        builder_.Add(std::move(publish), builder_.worker(tile), {{1}}, {kHandleDtype}),
        0};
  }
  return found->second;
}

}  // namespace tofu
