// Generates the program of one worker: its parts of the operators, the regions that it
// fetches, and the pieces of its tiles that others fetch (paper section 6).
//
// No other worker's program is made. A plan gives each step a number of parts, and a
// worker is its digits. Its tiles, the regions that its operators need, the owners of
// their pieces and the readers of its tiles all follow from the digits
// (overlapping_workers.h).
//
// All workers have the same steps, in the same order and with the same names; a worker
// may take no part in a step. A fetch is the moment before an operator, or after it, so
// what others read of a worker's tile at a fetch mirrors what the worker reads of theirs.
//
// Input:      a training graph, its strategy table, and a plan for it.
// Output:     the worker's steps in memory_order.h's order of the serial graph.
// Invariants: an owner sends a reader at most one piece for each fetch. The bytes fetched
//             are those that the plan's cost counts (passes/search/cost/cost.h), less
//             those of shared regions (share_regions.h) and of constants, and more by
//             those that routes add. A region that goes over a route takes a fetch for
//             each move.
// Errors:     UserError(kGraph) for heads that do not exist, UserError(kTable) if the
//             parts of an operator leave out some of its output, UserError(kPlan) for a
//             route that does not fit.
// Position:   after search, which makes the plan.
// Complexity: O(n * (w + d) * r) for n nodes and tensors of rank r, if at most w workers
//             exchange pieces of a tensor, and a dimension has at most d intervals;
//             without pieces, O(n * d * r).
#ifndef TOFU_PASSES_DIVIDE_WORKER_PROGRAM_H_
#define TOFU_PASSES_DIVIDE_WORKER_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/divide/fetch.h"
#include "passes/search/cost/cost.h"

namespace tofu {

// An array of a program: an output of a step.
struct ArrayId {
  int step = -1;  // -1: the worker has no such array
  int output = 0;

  bool operator==(const ArrayId& other) const {
    return step == other.step && output == other.output;
  }
};

// A piece of a worker's array that another worker fetches.
struct SentPiece {
  int reader = 0;
  Box box;  // within the array
};

// Senders of a fetch as a reader in the middle of the plan's digits sees them: their
// number, and the steps at which their digits differ from its own.
struct SenderPattern {
  StepSet differing = 0;
  int senders = 0;

  bool operator==(const SenderPattern& other) const {
    return differing == other.differing && senders == other.senders;
  }
  bool operator<(const SenderPattern& other) const {
    return std::tie(differing, senders) < std::tie(other.differing, other.senders);
  }
};

// Fetches of one key assemble equal regions on every worker.
struct FetchKey {
  int entry = -1;  // whose tiles they read; -1: no other fetch is like it
  int region = 0;  // equal for equal boxes of all workers
  std::string fill;

  bool operator<(const FetchKey& other) const {
    return std::tie(entry, region, fill) <
           std::tie(other.entry, other.region, other.fill);
  }
};

struct Stage;

struct ProgramStep {
  enum class Kind { kVariable, kRun, kConstant, kFetch };

  Kind kind = Kind::kRun;
  std::string name;        // the node's, or "<node>/in0", "<node>/out0", "head/<role>"
  size_t place = 0;        // where "/in0" or "/out0" begins
  int node = -1;           // of the serial graph; a constant's operator, -1: zeros
  bool takes_part = true;  // whether this worker makes the outputs, or needs the variable
  Attrs attrs;             // of an operator's part
  std::vector<ArrayId> inputs;
  std::vector<Shape> shapes;  // of the outputs
  std::vector<int> dtypes;
  std::vector<int>
      after;  // the steps that make what any worker reads here, but constants

  // Of fetches.
  FetchSpec spec;         // a kFill piece comes first, and fills the whole region
  ArrayId held;           // the array of which others read pieces
  ArrayId source;         // the same array as another worker may have it
  bool receives = false;  // whether pieces are another worker's
  bool sends = false;     // whether others read pieces of `held`
  std::vector<SentPiece> sent;
  int64_t received_bytes = 0;  // by all workers
  std::vector<SenderPattern> pattern;
  std::vector<int>
      weighted_dims;  // that the weights of terms have; they are the last input
  FetchKey key;
  bool makes_tile = false;  // or a piece that others read; else one operator's input
  std::shared_ptr<const Stage> stage;  // from which boxes to which (plan_stage.h)
};

// Ends the name of the fetch that reduces a piece of a worker's tile. The next step,
// whose name is the rest, gathers the pieces.
constexpr char kPiece[] = "/piece";

struct ProgramHead {
  std::string role;
  ArrayId array;
  int made_by = 0;  // the step that makes it on some worker
  Shape shape;      // of the whole tensor
  int dtype = 0;
  std::vector<int> cuts;  // of its tiles, by step
};

struct WorkerProgram {
  int worker = 0;
  std::vector<ProgramStep> steps;
  std::vector<ProgramHead> heads;
  int64_t shared_bytes = 0;   // of the plan's, saved by shared regions and constants
  int64_t relayed_bytes = 0;  // that routes add
};

struct ProgramOptions {
  // The roles of the heads to make, in full ("gradient:w") or by kind ("gradient").
  // Default: all except "update".
  std::optional<std::vector<std::string>> heads = {};
  // Whether workers keep regions for later operators, and make constants where they are
  // read.
  bool share = true;
  // The bytes by which a worker's peak may grow for regions that it keeps instead of
  // fetching them again.
  int64_t spare_bytes = 0;
  // Whether fetches have their pieces, here and for others. Without them, time and memory
  // do not grow with their number; PiecesOf and PlanSent make those of one fetch.
  bool pieces = true;
};

WorkerProgram MakeWorkerProgram(const Graph& graph, const StrategyTable& table,
                                const Plan& plan, int worker,
                                const ProgramOptions& options = {});

// The specification of a fetch in which the worker takes part, with pieces.
FetchSpec PiecesOf(const ProgramStep& fetch);

// The programs of all workers. Only the first one notes what others send and read.
std::vector<WorkerProgram> MakeWorkerPrograms(const Graph& graph,
                                              const StrategyTable& table,
                                              const Plan& plan,
                                              const ProgramOptions& options = {});

}  // namespace tofu

#endif  // TOFU_PASSES_DIVIDE_WORKER_PROGRAM_H_
