// Carries out fetches with stock operators (emit_plain.h), directly or through a root
// (root_fetches.h), or with MultiFetch (emit_multifetch.h), and counts the bytes.
//
// Input:      specs (fetch.h) and the entry that every source worker holds.
// Output:     nodes appended to the builder, and bytes added to the result's counts.
// Position:   within partition.
// Complexity: that of emit_plain.h and emit_multifetch.h.
#ifndef TOFU_PASSES_PARTITION_EMIT_FETCHES_H_
#define TOFU_PASSES_PARTITION_EMIT_FETCHES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/box.h"
#include "graph/graph.h"
#include "passes/divide/fetch.h"
#include "passes/partition/emit_multifetch.h"
#include "passes/partition/graph_builder.h"
#include "passes/partition/partition.h"
#include "passes/partition/partitioned.h"
#include "passes/partition/root_fetches.h"

namespace tofu {

// The name of a node or tile that every worker has, on one of them.
std::string AtWorker(const std::string& name, int worker);

int64_t FetchedBytes(const FetchSpec& spec, int dtype);

// Assembled regions by worker.
using Regions = std::map<int, NodeEntry>;

class FetchEmitter {
 public:
  FetchEmitter(const PartitionOptions& options, GraphBuilder* builder,
               Partitioned* result);

  // `entries[w]` is the source array of worker w.
  NodeEntry Emit(const FetchSpec& spec, const std::vector<NodeEntry>& entries, int dtype,
                 const std::string& name);

  // Only with MultiFetch.
  NodeEntry Emit(const FetchOutline& outline, const std::vector<NodeEntry>& entries,
                 const std::string& name) {
    return multifetch_.Emit(outline, entries, name);
  }

  // Before a fetch at which other workers, too, read a worker's tile.
  void Share(NodeEntry tile) {
    if (kind_ == FetchKind::kMultiFetch) multifetch_.Share(tile);
  }

  // MultiFetch keeps no copies from the last round.
  void BeginRound() { multifetch_.BeginRound(); }

  // Returns the tile on its own worker: copies it if another worker produced it.
  NodeEntry OnWorker(NodeEntry tile, int worker, const std::string& name);

  bool MayUseRoots() const { return small_bytes_ > 0; }

  // Whether a region may be fetched through a root.
  bool IsSmall(const Box& region, int dtype) const;

  std::vector<RootFetches> PlanRoots(const std::vector<FetchSpec>& specs,
                                     const FetchPlanner& planner, int dtype) const;

  // Emits the fetches of roots, in place of the fetches `replaced`. Returns the regions
  // that workers read; a region may be on its root. `name_at`: the names on workers.
  Regions EmitRoots(const std::vector<RootFetches>& roots,
                    const std::vector<FetchSpec>& replaced,
                    const std::vector<NodeEntry>& entries, int dtype,
                    const std::function<std::string(int)>& name_at);

 private:
  const FetchKind kind_;
  const int64_t small_bytes_;
  int num_roots_ = 0;  // roots so far; workers take turns
  GraphBuilder& builder_;
  Partitioned& result_;
  MultiFetchEmitter multifetch_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_EMIT_FETCHES_H_
