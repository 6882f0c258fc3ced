// Generates the partitioned graph from the programs of all workers, side by side: k
// instances of every operator, each with the regions it needs, and the tiles of every
// tensor (paper section 6; divide/worker_program.h).
//
// Input:      a training graph, its strategy table, and a plan for it.
// Output:     a new graph in which every node has a worker, with the tiles of
//             variables and heads, and the bytes that its fetches move.
//             Or the view of one worker: its part of that graph, as worker 0. Beside it
//             stand one worker that reads its tiles in its turn behind it, and one that
//             does so before it, unless it is the first. They read all tiles of the one
//             in view that any worker reads. So its tensors live as long as among all
//             workers. A view cannot run.
// Invariants: instances are in memory_order.h's order of the serial graph; an
//             output is brought to its tiles once, and consumers fetch from tiles;
//             every worker reduces only its own tile or piece of it, or a root reduces
//             all of a small one, with terms in the same order everywhere.
//             For a plan of the same heads, the bytes fetched for an operator are exactly
//             those that the plan's cost counts; bytes that shared regions
//             (share_regions.h) and constants save, and that routes and roots add
//             (root_fetches.h), are counted separately. If any output of an instance is
//             read, all are that the serial graph reads; unread ones become additional
//             heads.
// Errors:     UserError(kGraph) for heads that do not exist, UserError(kTable)
//             if the parts of an operator leave out some of its output.
// Position:   after search, which makes the plan; before phases, which needs
//             workers and tiles.
// Complexity: k times that of a worker's program; a view: three times.
#ifndef TOFU_PASSES_PARTITION_PARTITION_H_
#define TOFU_PASSES_PARTITION_PARTITION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fetch/crossing.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/partition/partitioned.h"

namespace tofu {

// The implementation of fetches: stock operators (emit_plain.h) or MultiFetch
// (emit_multifetch.h).
enum class FetchKind { kPlain, kMultiFetch };

// Throws UserError(kPlan) unless `name` is "plain" or "multifetch".
FetchKind ParseFetchKind(const std::string& name);

// The bytes that cross between GPUs in about the time that the host needs to start a
// copy.
constexpr int64_t kSmallFetchBytes = 64 << 10;

struct PartitionOptions {
  // The roles of the heads to generate, in full ("gradient:w") or by kind ("gradient").
  // Default: all except "update".
  std::optional<std::vector<std::string>> heads;
  FetchKind fetch = FetchKind::kPlain;
  // Whether to share equal regions (share_regions.h), and to make constants where they
  // are read (constants.h); only with MultiFetch.
  bool share = true;
  // The kind of data that MultiFetch reads from other workers.
  Crossing crossing = Crossing::kPlainTiles;
  // With stock operators, regions up to this size are fetched through a root if that
  // makes fewer copies between workers (root_fetches.h).
  int64_t small_bytes = kSmallFetchBytes;
  // The bytes by which a worker's peak may grow for regions that it keeps, even from
  // forward to backward, instead of fetching them again. Only with `share`.
  int64_t spare_bytes = 0;
  // Whether to join fetches that wait for each other anyway (bundle_fetches.h); only with
  // MultiFetch.
  bool bundle = true;
  // The worker whose view to make instead of the graph of all; only with MultiFetch.
  std::optional<int> view = {};
};

Partitioned PartitionGraph(const Graph& graph, const StrategyTable& table,
                           const Plan& plan, const PartitionOptions& options = {});

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_PARTITION_H_
