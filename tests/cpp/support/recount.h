// Counts the bytes that the workers fetch under a plan, worker by worker and region by
// region, from only the plan, the graph and the table.
//
// This is an oracle: it shares no code with src/ except the structs Graph, StrategyTable
// and Plan. It has its own geometry, arithmetic and sizes of dtypes, so a fault in src/
// cannot hide behind the same fault here.
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
  std::vector<Region> computed;      // [input]: needed, or zeros in their place
  std::vector<Region> input_tiles;   // [input]: the tile that it owns
  std::vector<int64_t> terms;        // [input]: terms that it reads of each element
  std::vector<int> term;             // [input]: number of the term that it owns
  std::vector<Region> made;          // [output]
  std::vector<Region> output_tiles;  // [output]: the tile that it has to own
  std::vector<int64_t> copies;       // [output]: parts that are reduced into it
  std::vector<int> copy;             // [output]: number of the part that it made
};

// The cheapest way in which workers share the reduction of an output.
struct SharedReduction {
  int64_t bytes = 0;           // over all workers
  bool in_pieces = false;      // else each worker reduces its whole tile
  std::vector<Region> pieces;  // [worker]: its piece, or its tile
};

SharedReduction RecountOutput(const Graph& graph, const StrategyTable& table,
                              const Plan& plan, int node, int index);

WorkerPart RecountPart(const Graph& graph, const StrategyTable& table, const Plan& plan,
                       int node, int worker);

// Piece number `which` of `count`; the first pieces take one more element each if the
// span does not divide.
Span PartOf(Span span, int count, int which);

int64_t CountElements(const Region& region);
int64_t BytesOfType(int dtype);

// The bytes that all workers fetch under the plan.
int64_t Recount(const Graph& graph, const StrategyTable& table, const Plan& plan);

// The part of these bytes that one node causes. `read`: ReadTensors(graph).
int64_t RecountNode(const Graph& graph, const StrategyTable& table, const Plan& plan,
                    const std::vector<bool>& read, int node);

// Per entry: whether a head, or an operator that a head needs, reads it.
std::vector<bool> ReadTensors(const Graph& graph);

// The number of values that variable `var` of a node's row takes.
int64_t VariableExtent(const Graph& graph, const StrategyRow& row, int node, size_t var);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_RECOUNT_H_
