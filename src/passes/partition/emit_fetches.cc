#include "passes/partition/emit_fetches.h"

#include <algorithm>
#include <utility>

#include "fetch/crossing.h"
#include "passes/partition/emit_plain.h"

namespace tofu {
namespace {

Crossing CrossingOf(const PartitionOptions& options) {
  return options.apart.empty() ? options.crossing : Crossing::kCopies;
}

// Whether the executor makes copies between workers.
bool IsCopied(const PartitionOptions& options) {
  return options.fetch == FetchKind::kPlain || CrossingOf(options) == Crossing::kCopies;
}

}  // namespace

std::string AtWorker(const std::string& name, int worker) {
  return name + "@" + std::to_string(worker);
}

int64_t FetchedBytes(const FetchSpec& spec, int dtype) {
  return FetchedElements(spec) * DtypeBytes(dtype);
}

FetchEmitter::FetchEmitter(const PartitionOptions& options, GraphBuilder* builder,
                           Partitioned* result)
    : kind_(options.fetch),
      apart_(options.apart),
      crossing_(CrossingOf(options)),
      small_bytes_(IsCopied(options) ? options.small_bytes : 0),
      builder_(*builder),
      result_(*result),
      multifetch_(crossing_, builder) {}

NodeEntry FetchEmitter::Emit(const FetchSpec& spec, const std::vector<NodeEntry>& entries,
                             int dtype, const std::string& name) {
  result_.fetched_bytes_per_worker[spec.worker] += FetchedBytes(spec, dtype);
  return kind_ == FetchKind::kMultiFetch && ReachesSources(spec) &&
                 !IsSmall(spec.region, dtype)
             ? multifetch_.Emit(spec, entries, dtype, name)
             : EmitPlain(spec, entries, dtype, name, &builder_);
}

NodeEntry FetchEmitter::OnWorker(NodeEntry tile, int worker, const std::string& name) {
  if (builder_.worker(tile) == worker) return tile;
  return builder_.Copy(name + "/copy", worker, tile);
}

bool FetchEmitter::IsSmall(const Box& region, int dtype) const {
  return small_bytes_ > 0 && region.Volume() * DtypeBytes(dtype) <= small_bytes_;
}

std::vector<RootFetches> FetchEmitter::PlanRoots(const std::vector<FetchSpec>& specs,
                                                 const FetchPlanner& planner,
                                                 int dtype) const {
  return PlanRootFetches(specs, planner, DtypeBytes(dtype), small_bytes_, num_roots_);
}

Regions FetchEmitter::EmitRoots(const std::vector<RootFetches>& roots,
                                const std::vector<FetchSpec>& replaced,
                                const std::vector<NodeEntry>& entries, int dtype,
                                const std::function<std::string(int)>& name_at) {
  Regions regions;
  for (const RootFetches& through : roots) {
    const int root = through.collect.worker;
    std::vector<NodeEntry> held(result_.workers);
    held[root] = Emit(through.collect, entries, dtype, name_at(root) + "/root");
    result_.relayed_bytes += FetchedBytes(through.collect, dtype);
    for (const FetchSpec& spec : through.regions) {
      regions[spec.worker] = Emit(spec, held, dtype, name_at(spec.worker));
      result_.relayed_bytes += FetchedBytes(spec, dtype);
    }
    ++num_roots_;
  }
  for (const FetchSpec& spec : replaced) {
    if (regions.count(spec.worker) == 0) continue;
    result_.relayed_bytes -= FetchedBytes(spec, dtype);
  }
  return regions;
}

bool FetchEmitter::ReachesSources(const FetchSpec& spec) const {
  return apart_.empty() ||
         std::all_of(spec.pieces.begin(), spec.pieces.end(), [&](const auto& piece) {
           return apart_.count({spec.worker, piece.source}) == 0;
         });
}

}  // namespace tofu
