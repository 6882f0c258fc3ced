// The training graph: operators, tensors, shapes and dtypes, as in NNVM's JSON. This
// file knows no operator by name.
//
// Input:  NNVM JSON with the graph attributes "shape", "dtype" and
//         "tofu_heads" (docs/formats.md).
// Errors: UserError(kGraph) for text that is not such a graph; the message
//         says where in the document, what was found and what was expected.
#ifndef TOFU_GRAPH_GRAPH_H_
#define TOFU_GRAPH_GRAPH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/name.h"
#include "base/short_vector.h"
#include "graph/attrs.h"

namespace tofu {

class JsonCursor;

// The extents of a tensor by dimension.
using Shape = ShortVector<int64_t, 4>;

// The most elements of a tensor. Byte counts over thousands of workers then cannot
// overflow (2^34 elements x 16 bytes x 2^14 workers = 2^52).
constexpr int64_t kMaxElements = int64_t{1} << 34;

// The attribute of NNVM's JSON that is a node's `group`.
constexpr char kGroupAttr[] = "__ctx_group__";

// Output number `index` of node number `node`: one tensor of the graph.
struct NodeEntry {
  int node = 0;
  int index = 0;
};

struct Node {
  Name op;  // empty for a variable
  std::string name;
  Attrs attrs;  // without kGroupAttr
  std::vector<NodeEntry> inputs;
  std::vector<int> control_deps;
  int num_outputs = 1;  // hidden outputs included
  Name group;           // the nodes of a group run on one device; may be empty
  // Whether a second run may compute something else: random numbers, or an unknown
  // result.
  bool runs_once = false;

  bool is_variable() const { return op.empty(); }
};

// Nodes are in topological order. Entries are numbered consecutively:
// entry_id = first_entry[node] + index.
struct Graph {
  std::vector<Node> nodes;
  std::vector<NodeEntry> heads;
  std::vector<std::string> head_roles;  // parallel to heads, may be empty
  std::vector<int> first_entry;         // size nodes + 1
  std::vector<Shape> shapes;            // per entry
  std::vector<int> dtypes;              // per entry, type flags (docs/formats.md)

  int num_nodes() const { return static_cast<int>(nodes.size()); }
  int num_entries() const { return first_entry.empty() ? 0 : first_entry.back(); }
  int entry_id(NodeEntry e) const { return first_entry[e.node] + e.index; }
  const Shape& shape(NodeEntry e) const { return shapes[entry_id(e)]; }
  int dtype(NodeEntry e) const { return dtypes[entry_id(e)]; }
};

// A node's attributes, including that of its group.
Attrs AllAttrs(const Node& node);

// The number of elements of `shape`; 1 for a scalar.
int64_t NumElements(const Shape& shape);

// The bytes of one element of type flag `dtype`; UserError if unknown.
int64_t DtypeBytes(int dtype);

// Sets first_entry from the nodes' num_outputs.
void IndexEntries(Graph* graph);

// Per entry: whether a head, or an operator that some head needs, reads it. Other
// entries are neither fetched nor counted.
std::vector<bool> UsedEntries(const Graph& graph);

Graph ReadGraph(const std::string& json);
// The same for a graph that is part of another document (base/json.h).
Graph ReadGraph(const JsonCursor& root);
std::string WriteGraph(const Graph& graph);
// The same without shapes, dtypes and roles, as a framework loads it.
std::string WriteSymbol(const Graph& graph);

// A hash of the graph's structure, shapes and dtypes, stable over runs and
// machines (16 hexadecimal digits).
std::string GraphHash(const Graph& graph);

}  // namespace tofu

#endif  // TOFU_GRAPH_GRAPH_H_
