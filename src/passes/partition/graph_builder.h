// Appends nodes to a partitioned graph: every node has a worker, every entry a shape
// and dtype, and names are unique.
#ifndef TOFU_PASSES_PARTITION_GRAPH_BUILDER_H_
#define TOFU_PASSES_PARTITION_GRAPH_BUILDER_H_

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "graph/box.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "mxnet/dialect/dialect.h"

namespace tofu {

class GraphBuilder {
 public:
  // Adds `node` on `worker`; its name is made unique, its outputs get `shapes`
  // and `dtypes`. Returns the node's number.
  int Add(Node node, int worker, const std::vector<Shape>& shapes,
          const std::vector<int>& dtypes);
  // The same with one shape and dtype for each of the node's outputs.
  int Add(Node node, int worker, const Shape* shapes, const int* dtypes);

  // Makes room for `nodes` nodes.
  void Reserve(int nodes);

  // Stock operators with one output (mxnet/dialect/dialect.h). `box` is in the source's
  // own coordinates; if it is the whole source, Slice adds nothing.
  NodeEntry Slice(const std::string& name, int worker, NodeEntry source, const Box& box);
  NodeEntry Concat(const std::string& name, int worker,
                   const std::vector<NodeEntry>& parts, int dim);
  NodeEntry Fill(const std::string& name, int worker, const Shape& shape, int dtype,
                 const std::string& value);
  NodeEntry Copy(const std::string& name, int worker, NodeEntry source);
  NodeEntry PlainCopy(const std::string& name, int worker, NodeEntry source);
  NodeEntry Cast(const std::string& name, int worker, NodeEntry source, int dtype);
  NodeEntry Reduce(const std::string& name, int worker,
                   const std::vector<NodeEntry>& terms, Reducer reduce);

  const Shape& shape(NodeEntry entry) const { return graph_.shape(entry); }
  int dtype(NodeEntry entry) const { return graph_.dtype(entry); }
  int worker(NodeEntry entry) const { return node_workers_[entry.node]; }
  Graph& graph() { return graph_; }
  std::vector<int>& node_workers() { return node_workers_; }

 private:
  NodeEntry LogSumExp(const std::string& name, int worker,
                      const std::vector<NodeEntry>& terms);
  std::string UniqueName(const std::string& base);
  NodeEntry AddOne(Node node, const std::string& name, int worker,
                   std::vector<NodeEntry> inputs, const Shape& shape, int dtype);

  Graph graph_;
  std::vector<int> node_workers_;
  std::vector<Name> groups_;  // [worker], of the workers so far
  std::unordered_set<std::string> names_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_GRAPH_BUILDER_H_
