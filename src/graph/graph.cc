#include "graph/graph.h"

#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace tofu {
namespace {

using Json = nlohmann::ordered_json;

// The "mxnet_version" that a loader of this JSON expects: 1.9.1.
constexpr int kFormatVersion = 10901;

// Sizes by type flag: float32, float64, float16, uint8, int32, int8,
// int64, bool, int16, uint16, uint32, uint64, bfloat16; of PyTorch alone: complex64,
// complex128.
constexpr int64_t kDtypeBytes[] = {4, 8, 2, 1, 4, 1, 8, 1, 2, 2, 4, 8, 2, 8, 16};
constexpr int kNumDtypes = sizeof(kDtypeBytes) / sizeof(kDtypeBytes[0]);

// Reads [node, output] or [node, output, version].
NodeEntry ReadEntry(const JsonCursor& cursor, const Graph& graph, int num_nodes) {
  if (cursor.Size() < 2) cursor.Fail("[node, output, version]");
  NodeEntry entry;
  entry.node = cursor.At(0).Index(num_nodes);
  entry.index = cursor.At(1).Index(graph.nodes[entry.node].num_outputs);
  return entry;
}

void ReadAttrs(const JsonCursor& node, Node* out) {
  if (!node.Has("attrs")) return;
  const JsonCursor attrs = node.At("attrs");
  Attrs::Map map;
  for (std::string_view key : attrs.Keys("an object of strings")) {
    map.emplace_hint(map.end(), key, attrs.At(key).String());
  }
  if (const auto group = map.find(kGroupAttr); group != map.end()) {
    out->group = group->second;
    map.erase(group);
  }
  out->attrs = std::move(map);
}

// Reads node `id`; earlier nodes have been read, and all have their num_outputs.
void ReadNode(const JsonCursor& cursor, int id, Graph* graph) {
  Node& node = graph->nodes[id];
  node.op = cursor.At("op").String();
  if (node.op == "null") node.op = Name();
  node.name = cursor.At("name").String();
  ReadAttrs(cursor, &node);
  const JsonCursor inputs = cursor.At("inputs");
  for (int i = 0; i < inputs.Size(); ++i) {
    // An input at or after the node itself would break the topological order.
    node.inputs.push_back(ReadEntry(inputs.At(i), *graph, id));
  }
  if (cursor.Has("control_deps"))
    node.control_deps = cursor.At("control_deps").Indices(id);
  if (!node.is_variable()) return;
  if (!node.inputs.empty())
    inputs.Fail("[]: a variable (\"op\": \"null\") has no inputs");
  if (node.num_outputs != 1) {
    cursor.Fail("one output by node_row_ptr: a variable has exactly one");
  }
}

// Reads every node's number of outputs, including hidden ones, from node_row_ptr.
void ReadNumOutputs(const JsonCursor& root, Graph* graph) {
  const JsonCursor rows = root.At("node_row_ptr");
  if (rows.Size() != graph->num_nodes() + 1) {
    rows.Fail("an array of " + std::to_string(graph->num_nodes() + 1) +
              ", one more than there are nodes");
  }
  int64_t previous = rows.At(0).Int(0, 0);
  for (int i = 0; i < graph->num_nodes(); ++i) {
    const int64_t next =
        rows.At(i + 1).Int(previous + 1, std::numeric_limits<int>::max());
    graph->nodes[i].num_outputs = static_cast<int>(next - previous);
    previous = next;
  }
  IndexEntries(graph);
}

Shape ReadShape(const JsonCursor& cursor) {
  Shape shape(static_cast<size_t>(cursor.Size()));
  int64_t elements = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    shape[d] = cursor.At(static_cast<int>(d)).Int(1, kMaxElements);
    if (elements > kMaxElements / shape[d]) cursor.Fail("at most 2^34 elements");
    elements *= shape[d];
  }
  return shape;
}

// Finds a graph attribute with one value per entry.
JsonCursor PerEntry(const JsonCursor& attrs, const char* key, const char* tag,
                    const Graph& graph) {
  const JsonCursor list = attrs.At(key).Tagged(tag);
  if (list.Size() != graph.num_entries()) {
    list.Fail("an array of " + std::to_string(graph.num_entries()) +
              ", one for every output of every node");
  }
  return list;
}

void ReadHeads(const JsonCursor& root, const JsonCursor& attrs, Graph* graph) {
  const JsonCursor heads = root.At("heads");
  for (int i = 0; i < heads.Size(); ++i) {
    graph->heads.push_back(ReadEntry(heads.At(i), *graph, graph->num_nodes()));
  }
  if (!attrs.Has("tofu_heads")) return;
  const JsonCursor roles = attrs.At("tofu_heads").Tagged("list_str");
  if (roles.Size() != heads.Size()) {
    roles.Fail("an array of " + std::to_string(heads.Size()) + ", one role per head");
  }
  for (int i = 0; i < roles.Size(); ++i) {
    graph->head_roles.emplace_back(roles.At(i).String());
  }
}

Json EntryJson(NodeEntry entry) { return Json::array({entry.node, entry.index, 0}); }

Json NodeJson(const Node& node) {
  Json json = {{"op", node.is_variable() ? "null" : node.op.text()}, {"name", node.name}};
  const Attrs attrs = AllAttrs(node);
  if (!attrs.empty()) json["attrs"] = attrs.map();
  json["inputs"] = Json::array();
  for (NodeEntry input : node.inputs) json["inputs"].push_back(EntryJson(input));
  if (!node.control_deps.empty()) json["control_deps"] = node.control_deps;
  return json;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json VersionAttrs() { return {{"mxnet_version", {"int", kFormatVersion}}}; }

// Writes the document with these graph attributes.
std::string WriteWith(const Graph& graph, Json attrs) {
  // Write node by node: a document of all nodes would take far more memory than its text.
  std::string text = R"({"nodes":[)";
  Json variables = Json::array();
  for (int i = 0; i < graph.num_nodes(); ++i) {
    if (i > 0) text += ',';
    text += Dump(NodeJson(graph.nodes[i]));
    if (graph.nodes[i].is_variable()) variables.push_back(i);
  }
  Json heads = Json::array();
  for (NodeEntry head : graph.heads) heads.push_back(EntryJson(head));
  Json members;
  members["arg_nodes"] = std::move(variables);
  members["node_row_ptr"] = graph.first_entry;
  members["heads"] = std::move(heads);
  members["attrs"] = std::move(attrs);
  return text + "]," + Dump(members).substr(1);
}

// FNV-1a over length-prefixed fields, so that different graphs have different input.
class Hasher {
 public:
  void Add(int64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      Byte(static_cast<unsigned char>(static_cast<uint64_t>(value) >> shift));
    }
  }
  void Add(const std::string& text) {
    Add(static_cast<int64_t>(text.size()));
    for (char c : text) Byte(static_cast<unsigned char>(c));
  }
  std::string Hex() const {
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(state_));
    return text;
  }

 private:
  void Byte(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001b3ULL; }

  uint64_t state_ = 0xcbf29ce484222325ULL;
};

void HashEntry(NodeEntry entry, Hasher* hasher) {
  hasher->Add(entry.node);
  hasher->Add(entry.index);
}

}  // namespace

Attrs AllAttrs(const Node& node) {
  Attrs attrs = node.attrs;
  if (!node.group.empty()) attrs[kGroupAttr] = node.group;
  return attrs;
}

int64_t NumElements(const Shape& shape) {
  int64_t elements = 1;
  for (int64_t extent : shape) elements *= extent;
  return elements;
}

int64_t DtypeBytes(int dtype) {
  TOFU_CHECK_USER(dtype >= 0 && dtype < kNumDtypes, Blame::kGraph)
      << "graph: found type flag " << dtype << ", expected 0 to " << kNumDtypes - 1
      << "; infer the types of the whole graph first";
  return kDtypeBytes[dtype];
}

void IndexEntries(Graph* graph) {
  graph->first_entry.assign(1, 0);
  for (const Node& node : graph->nodes) {
    graph->first_entry.push_back(graph->first_entry.back() + node.num_outputs);
  }
}

std::vector<bool> UsedEntries(const Graph& graph) {
  std::vector<bool> used(static_cast<size_t>(graph.num_entries()), false);
  for (NodeEntry head : graph.heads) used[graph.entry_id(head)] = true;
  for (int node = graph.num_nodes() - 1; node >= 0; --node) {
    bool live = false;
    for (int e = graph.first_entry[node]; e < graph.first_entry[node + 1]; ++e) {
      live = live || used[e];
    }
    if (!live) continue;
    for (NodeEntry input : graph.nodes[node].inputs) used[graph.entry_id(input)] = true;
  }
  return used;
}

Graph ReadGraph(const std::string& json) {
  const JsonDocument document =
      ParseJson(json, Blame::kGraph, "graph",
                "write it with Symbol.tojson() after shape and type inference");
  return ReadGraph(JsonCursor(document));
}

Graph ReadGraph(const JsonCursor& root) {
  const JsonCursor nodes = root.At("nodes");
  Graph graph;
  graph.nodes.resize(static_cast<size_t>(nodes.Size()));
  ReadNumOutputs(root, &graph);
  for (int i = 0; i < graph.num_nodes(); ++i) ReadNode(nodes.At(i), i, &graph);
  const JsonCursor attrs = root.At("attrs");
  ReadHeads(root, attrs, &graph);
  const JsonCursor shapes = PerEntry(attrs, "shape", "list_shape", graph);
  const JsonCursor dtypes = PerEntry(attrs, "dtype", "list_int", graph);
  for (int e = 0; e < graph.num_entries(); ++e) {
    graph.shapes.push_back(ReadShape(shapes.At(e)));
    graph.dtypes.push_back(dtypes.At(e).Index(kNumDtypes));
  }
  return graph;
}

std::string WriteGraph(const Graph& graph) {
  Json attrs = VersionAttrs();
  attrs["shape"] = Json::array({"list_shape", graph.shapes});
  attrs["dtype"] = Json::array({"list_int", graph.dtypes});
  if (!graph.head_roles.empty()) {
    attrs["tofu_heads"] = Json::array({"list_str", graph.head_roles});
  }
  return WriteWith(graph, std::move(attrs));
}

std::string WriteSymbol(const Graph& graph) { return WriteWith(graph, VersionAttrs()); }

std::string GraphHash(const Graph& graph) {
  Hasher hasher;
  for (const Node& node : graph.nodes) {
    hasher.Add(node.op.text());
    hasher.Add(node.name);
    hasher.Add(node.num_outputs);
    const Attrs attrs = AllAttrs(node);
    hasher.Add(static_cast<int64_t>(attrs.size()));
    for (const auto& [key, value] : attrs) {
      hasher.Add(key);
      hasher.Add(value);
    }
    hasher.Add(static_cast<int64_t>(node.inputs.size()));
    for (NodeEntry input : node.inputs) HashEntry(input, &hasher);
  }
  hasher.Add(static_cast<int64_t>(graph.heads.size()));
  for (NodeEntry head : graph.heads) HashEntry(head, &hasher);
  for (const std::string& role : graph.head_roles) hasher.Add(role);
  for (const Shape& shape : graph.shapes) {
    hasher.Add(static_cast<int64_t>(shape.size()));
    for (int64_t extent : shape) hasher.Add(extent);
  }
  for (int dtype : graph.dtypes) hasher.Add(dtype);
  return hasher.Hex();
}

}  // namespace tofu
