#include "passes/partition/emit_multifetch.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "fetch/multifetch_spec.h"
#include "fetch/node_names.h"

namespace tofu {
namespace {

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
    case Reducer::kWeighted:
    case Reducer::kApart:  // only the simulator reads these, and a sum takes as long
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

MultiFetchSpec KernelSpec(const FetchSpec& spec, const std::vector<int>& workers,
                          const std::vector<Shape>& shapes, int dtype) {
  MultiFetchSpec kernel;
  kernel.dtype = dtype;
  kernel.shape = spec.region.Extents();
  kernel.sources = shapes;
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
  std::vector<NodeEntry> inputs;
  std::vector<Shape> shapes;
  for (int worker : workers) {
    const NodeEntry tile = entries[worker];
    shapes.push_back(builder_.shape(tile));
    inputs.push_back(worker == spec.worker ? OnOwner(tile) : Readable(tile));
  }
  return Fetch(KernelSpec(spec, workers, shapes, dtype), std::move(inputs), spec.worker,
               name + "/fetch");
}

NodeEntry MultiFetchEmitter::Emit(const FetchOutline& outline,
                                  const std::vector<NodeEntry>& entries,
                                  const std::string& name) {
  Node fetch;
  fetch.op = kMultiFetchOp;
  fetch.name = name + "/fetch";
  for (int source : outline.sources) {
    fetch.inputs.push_back(source == outline.worker ? OnOwner(entries[source])
                                                    : Readable(entries[source]));
  }
  fetch.attrs[kSpecAttr] = "";
  fetch.attrs[kDirectAttr] = "1";
  const int added =
      builder_.Add(std::move(fetch), outline.worker, {outline.region}, {outline.dtype});
  return {added, 0};
}

NodeEntry MultiFetchEmitter::Readable(NodeEntry tile) {
  if (crossing_ == Crossing::kTiles || plain_.CanBeViewed(tile)) return tile;
  const auto [found, added] =
      copies_.emplace(std::make_pair(tile.node, tile.index), NodeEntry{});
  if (added) {
    const Shape flat = {NumElements(builder_.shape(tile))};
    const int worker = builder_.worker(tile);
    const Box whole = WholeBox(flat);
    found->second =
        Fetch(KernelSpec({worker, whole, {{worker, whole, whole}}}, {worker}, {flat},
                         builder_.dtype(tile)),
              {tile}, worker, builder_.graph().nodes[tile.node].name + "/plain");
  }
  return found->second;
}

NodeEntry MultiFetchEmitter::OnOwner(NodeEntry tile) const {
  const auto copy = copies_.find({tile.node, tile.index});
  return copy == copies_.end() ? tile : copy->second;
}

NodeEntry MultiFetchEmitter::Fetch(const MultiFetchSpec& spec,
                                   std::vector<NodeEntry> inputs, int worker,
                                   const std::string& name) {
  Node fetch;
  fetch.op = kMultiFetchOp;
  fetch.name = name;
  fetch.inputs = std::move(inputs);
  fetch.attrs[kSpecAttr] = WriteSpec(spec);
  fetch.attrs[kDirectAttr] = "1";
  return {builder_.Add(std::move(fetch), worker, {spec.shape}, {spec.dtype}), 0};
}

}  // namespace tofu
