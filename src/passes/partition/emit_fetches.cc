#include "passes/partition/emit_fetches.h"

#include "passes/partition/emit_plain.h"

namespace tofu {
std::string AtWorker(const std::string& name, int worker) {
  return name + "@" + std::to_string(worker);
}

int64_t FetchedBytes(const FetchSpec& spec, int dtype) {
  return FetchedElements(spec) * DtypeBytes(dtype);
}

FetchEmitter::FetchEmitter(const PartitionOptions& options, GraphBuilder* builder,
                           Partitioned* result)
    : kind_(options.fetch),
      small_bytes_(options.fetch == FetchKind::kPlain ? options.small_bytes : 0),
      builder_(*builder),
      result_(*result),
      multifetch_(options.crossing, builder) {}

NodeEntry FetchEmitter::Emit(const FetchSpec& spec, const std::vector<NodeEntry>& entries,
                             int dtype, const std::string& name) {
  const int64_t bytes = FetchedBytes(spec, dtype);
  result_.fetched_bytes_per_worker[spec.worker] += bytes;
  result_.fetched_bytes += bytes;
  return kind_ == FetchKind::kMultiFetch
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

}  // namespace tofu
