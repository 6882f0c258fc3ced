// Counts the bytes that a plan makes the workers fetch, worker by worker and region by
// region, from only the plan, the graph and the table.
//
// This is an oracle. Of the code under test it uses only the structs Graph, StrategyTable
// and Plan, none of their functions. It has its own geometry, arithmetic and sizes of
// dtypes, so a fault in src/ cannot hide behind the same fault here.
#ifndef TOFU_TESTS_CPP_SUPPORT_RECOUNT_H_
#define TOFU_TESTS_CPP_SUPPORT_RECOUNT_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"

namespace tofu {

// Indices of one dimension: begin <= i < end.
struct Span {
  int64_t begin;
  int64_t end;
};
using Region = std::vector<Span>;

// One worker's part of an operator.
struct WorkerPart {
  std::vector<int> which;            // [step]: its part
  std::vector<Region> needed;        // [input]
  std::vector<Region> input_tiles;   // [input]: what it owns of them
  std::vector<Region> made;          // [output]
  std::vector<Region> output_tiles;  // [output]: what it has to own of them
  std::vector<int64_t> copies;       // [output]: parts that are reduced into it
  std::vector<int> copy;             // [output]: which of them it made
};

// The way in which the workers share the reduction of an output that fetches least.
struct SharedReduction {
  int64_t bytes = 0;           // over all workers
  bool in_pieces = false;      // or each worker reduces its whole tile
  std::vector<Region> pieces;  // [worker]: what it reduces, its tile or a piece of it
};

SharedReduction RecountOutput(const Graph& graph, const StrategyTable& table,
                              const Plan& plan, int node, int index);

WorkerPart RecountPart(const Graph& graph, const StrategyTable& table, const Plan& plan,
                       int node, int worker);

// Piece number `which` of `count`; the first ones take what is left over, one each.
Span PartOf(Span span, int count, int which);

int64_t CountElements(const Region& region);
int64_t BytesOfType(int dtype);

// Bytes that all workers fetch under the plan.
int64_t Recount(const Graph& graph, const StrategyTable& table, const Plan& plan);

// The part of these bytes that one node causes; read: ReadTensors(graph).
int64_t RecountNode(const Graph& graph, const StrategyTable& table, const Plan& plan,
                    const std::vector<bool>& read, int node);

// Per entry: whether a head, or an operator that a head needs, reads it.
std::vector<bool> ReadTensors(const Graph& graph);

// The number of values that variable `var` of a node's row takes.
int64_t VariableExtent(const Graph& graph, const StrategyRow& row, int node, size_t var);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_RECOUNT_H_
