// A plan: the cuts of every tensor and every operator of a graph, step by step (paper
// section 5.2). docs/formats.md documents the JSON form.
//
// Errors: UserError(kPlan) for text that is not a plan or does not fit the graph.
#ifndef TOFU_GRAPH_PLAN_H_
#define TOFU_GRAPH_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/box.h"
#include "graph/graph.h"
#include "graph/reduction_tiles.h"
#include "graph/strategy_table.h"

namespace tofu {

constexpr int kMaxWorkers = 1 << 14;

enum class PlanStatus {
  kOptimal,       // no plan of these steps costs less: it meets its lower bound
  kStepsOptimal,  // each step is a proven optimum given the others; the plan is not
  kFeasible,      // valid, at most total_bytes - lower_bound_bytes from the optimum
};

// The objective of a search, if not bytes (passes/search/cost/cost_model.h).
struct PlanObjective {
  std::string name;
  std::string unit;
  int64_t cost = 0;
  int64_t lower_bound = 0;  // of every plan of these steps
};

// The time of a step on a machine, as passes/search/cost/predict.h predicts it: means
// over the workers.
struct PredictedTime {
  struct Link {
    std::string name;
    int64_t bytes = 0;  // sent by all workers over this level of links
  };

  std::string machine;
  int64_t step_ns = 0;
  int64_t compute_ns = 0;
  int64_t fetch_ns = 0;
  int64_t hidden_ns = 0;  // the part of fetch_ns during computation
  int64_t host_ns = 0;
  // No plan of these steps takes less; -1: unknown, because bytes were the objective.
  int64_t lower_bound_ns = -1;
  std::vector<Link> links;  // by level, innermost first
  // Bytes by which routes exceed direct fetches; negative if their sums move fewer.
  int64_t relayed_bytes = 0;
};

// The route by which workers assemble an input that several of them need, instead of
// fetching it directly (passes/search/cost/routes.h).
struct Route {
  int node = 0;
  int input = 0;
  std::vector<TileSplits> stops;  // the pieces that they fetch, one after the other

  bool operator==(const Route& other) const {
    return node == other.node && input == other.input && stops == other.stops;
  }
};

// The route by which workers make the tiles of an output from parts or terms on other
// hosts, instead of fetching these directly.
struct OutputRoute {
  int node = 0;
  int output = 0;
  // Stops of a sum: pieces of each worker's result, with the terms of the stop's steps
  // added up.
  std::vector<TileSplits> partial;
  // Later stops: pieces of each worker's tile, with all terms added up.
  std::vector<TileSplits> stops;

  bool operator==(const OutputRoute& other) const {
    return node == other.node && output == other.output && partial == other.partial &&
           stops == other.stops;
  }
};

struct Plan {
  std::vector<int> parts;                     // k_1, k_2, ...; k is their product
  TileShares shares;                          // of each step's parts
  std::vector<std::vector<int>> tensor_cuts;  // [entry][step]: dimension or kReplicated
  std::vector<std::vector<int>> op_cuts;      // [node][step]: variable or kReplicated
  std::vector<int64_t> step_bytes;            // over all groups of the step
  std::vector<int64_t> node_bytes;            // [node], over all steps
  int64_t lower_bound_bytes = 0;              // 0 with another objective
  PlanStatus status = PlanStatus::kFeasible;
  std::string mode = "tofu";  // of the search (modes.h)
  double search_seconds = 0;
  std::optional<PlanObjective> objective;  // empty: bytes
  std::optional<PredictedTime> predicted;
  std::vector<Route> routes;               // by node and input; only for a machine
  std::vector<OutputRoute> output_routes;  // by node and output; likewise

  Division division() const { return {parts, shares}; }
  int workers() const {
    int k = 1;
    for (int p : parts) k *= p;
    return k;
  }
  int64_t total_bytes() const {
    int64_t sum = 0;
    for (int64_t b : step_bytes) sum += b;
    return sum;
  }
  // The cost that the search minimised, and its bound.
  int64_t cost() const { return objective ? objective->cost : total_bytes(); }
  int64_t lower_bound() const {
    return objective ? objective->lower_bound : lower_bound_bytes;
  }
  const char* unit() const { return objective ? objective->unit.c_str() : "bytes"; }
  void SetLowerBound(int64_t bound);
};

std::string WritePlan(const Plan& plan, const Graph& graph, const StrategyTable& table);
Plan ReadPlan(const std::string& json, const Graph& graph, const StrategyTable& table);

}  // namespace tofu

#endif  // TOFU_GRAPH_PLAN_H_
