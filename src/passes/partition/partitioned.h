// A graph divided over workers: the result of the partition pass.
#ifndef TOFU_PASSES_PARTITION_PARTITIONED_H_
#define TOFU_PASSES_PARTITION_PARTITIONED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/box.h"
#include "graph/graph.h"

namespace tofu {

// One worker's tile of a variable: the variable called `name` in the graph.
struct VariableTile {
  std::string name;
  int worker = 0;
  Box box;
};

struct PartitionedVariable {
  std::string name;  // in the serial graph
  std::string role;
  Shape shape;
  int dtype = 0;
  std::vector<VariableTile> tiles;  // one per worker
};

// One worker's tile of a head: head number `head` of the graph.
struct HeadTile {
  int head = 0;
  int worker = 0;
  Box box;
};

struct PartitionedHead {
  std::string role;
  Shape shape;
  int dtype = 0;
  std::vector<HeadTile> tiles;  // one per worker
};

struct Partitioned {
  int workers = 1;
  bool is_view = false;           // of the first worker (partition.h)
  Graph graph;                    // no control dependencies, no head roles
  std::vector<int> node_workers;  // per node
  std::vector<PartitionedVariable> variables;
  std::vector<PartitionedHead> heads;
  std::vector<int64_t> fetched_bytes_per_worker;  // zeros in a view
  int64_t fetched_bytes = 0;                      // by all workers
  // Bytes that shared fetches save, and bytes that fetches through roots add. Fetched
  // plus shared less relayed bytes are the plan's.
  int64_t shared_bytes = 0;
  int64_t relayed_bytes = 0;
};

// The worker of every node, from its context.
std::vector<int> NodeWorkers(const Graph& graph, int workers);

// Writes a line for each node: name, operator, worker, shape and dtype, inputs.
std::string DumpGraph(const Graph& graph);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_PARTITIONED_H_
