#include "passes/partition/partitioned.h"

#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "graph/plan.h"
#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormatId[] = "tofu-partitioned";
constexpr int kVersion = 1;
constexpr int kMaxDtype = 127;

std::vector<int64_t> ReadNumbers(const JsonCursor& cursor) {
  std::vector<int64_t> numbers;
  for (int i = 0; i < cursor.Size(); ++i) {
    numbers.push_back(cursor.At(i).Int(0, std::numeric_limits<int64_t>::max()));
  }
  return numbers;
}

Box ReadBox(const JsonCursor& tile, const Shape& shape) {
  Box box{ReadNumbers(tile.At("begin")), ReadNumbers(tile.At("end"))};
  if (box.begin.size() != shape.size()) tile.At("begin").Fail("one number a dimension");
  if (box.end.size() != shape.size()) tile.At("end").Fail("one number a dimension");
  if (!Contains(WholeBox(shape), box)) tile.Fail("a box inside the tensor's shape");
  return box;
}

void ReadNodeWorkers(Partitioned* partitioned) {
  std::map<std::string, int> numbers;
  for (int w = 0; w < partitioned->workers; ++w) numbers[WorkerContext(w)] = w;
  for (const Node& node : partitioned->graph.nodes) {
    const auto context = node.attrs.find(kContextAttr);
    const auto worker =
        context == node.attrs.end() ? numbers.end() : numbers.find(context->second);
    TOFU_CHECK_USER(worker != numbers.end(), Blame::kGraph)
        << "partitioned graph: node " << node.name << ": found "
        << (context == node.attrs.end() ? "no value" : context->second)
        << " for the attribute " << kContextAttr << ", expected one of "
        << WorkerContext(0) << " to " << WorkerContext(partitioned->workers - 1)
        << "; partition the graph anew";
    partitioned->node_workers.push_back(worker->second);
  }
}

void ReadVariables(const JsonCursor& variables, Partitioned* partitioned) {
  for (std::string_view name : variables.Keys("an object")) {
    const JsonCursor cursor = variables.At(name);
    PartitionedVariable variable;
    variable.name = name;
    variable.role = cursor.At("role").String();
    variable.shape = ReadNumbers(cursor.At("shape"));
    variable.dtype = cursor.At("dtype").Index(kMaxDtype);
    const JsonCursor tiles = cursor.At("tiles");
    for (int i = 0; i < tiles.Size(); ++i) {
      const JsonCursor tile = tiles.At(i);
      variable.tiles.push_back({std::string(tile.At("name").String()),
                                tile.At("worker").Index(partitioned->workers),
                                ReadBox(tile, variable.shape)});
    }
    partitioned->variables.push_back(std::move(variable));
  }
}

void ReadHeads(const JsonCursor& heads, Partitioned* partitioned) {
  const int num_heads = static_cast<int>(partitioned->graph.heads.size());
  for (int h = 0; h < heads.Size(); ++h) {
    const JsonCursor cursor = heads.At(h);
    PartitionedHead head;
    head.role = cursor.At("role").String();
    head.shape = ReadNumbers(cursor.At("shape"));
    head.dtype = cursor.At("dtype").Index(kMaxDtype);
    const JsonCursor tiles = cursor.At("tiles");
    for (int i = 0; i < tiles.Size(); ++i) {
      const JsonCursor tile = tiles.At(i);
      head.tiles.push_back({tile.At("head").Index(num_heads),
                            tile.At("worker").Index(partitioned->workers),
                            ReadBox(tile, head.shape)});
    }
    partitioned->heads.push_back(std::move(head));
  }
}

std::string ShapeText(const Shape& shape, int dtype) {
  std::string text = DtypeName(dtype) + "[";
  for (size_t d = 0; d < shape.size(); ++d) {
    text += (d == 0 ? "" : ",") + std::to_string(shape[d]);
  }
  return text + "]";
}

}  // namespace

Json VariablesJson(const std::vector<PartitionedVariable>& variables) {
  Json json = Json::object();
  for (const PartitionedVariable& variable : variables) {
    Json tiles = Json::array();
    for (const VariableTile& tile : variable.tiles) {
      tiles.push_back({{"name", tile.name},
                       {"worker", tile.worker},
                       {"begin", tile.box.begin},
                       {"end", tile.box.end}});
    }
    json[variable.name] = {{"role", variable.role},
                           {"shape", variable.shape},
                           {"dtype", variable.dtype},
                           {"tiles", std::move(tiles)}};
  }
  return json;
}

Json HeadsJson(const std::vector<PartitionedHead>& heads) {
  Json json = Json::array();
  for (const PartitionedHead& head : heads) {
    Json tiles = Json::array();
    for (const HeadTile& tile : head.tiles) {
      tiles.push_back({{"head", tile.head},
                       {"worker", tile.worker},
                       {"begin", tile.box.begin},
                       {"end", tile.box.end}});
    }
    json.push_back({{"role", head.role},
                    {"shape", head.shape},
                    {"dtype", head.dtype},
                    {"tiles", std::move(tiles)}});
  }
  return json;
}

std::string WithMember(const Json& object, const std::string& key,
                       const std::string& value) {
  std::string text = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.reserve(text.size() + key.size() + value.size() + 8);
  text.back() = ',';
  text.append("\"").append(key).append("\":").append(value).append("}");
  return text;
}

void ShiftHeads(int count, std::vector<PartitionedHead>* heads) {
  for (PartitionedHead& head : *heads) {
    for (HeadTile& tile : head.tiles) tile.head += count;
  }
}

Json PartitionedJson(const Partitioned& partitioned) {
  const std::vector<int64_t>& fetched = partitioned.fetched_bytes_per_worker;
  Json json = {
      {"format", kFormatId}, {"version", kVersion}, {"workers", partitioned.workers}};
  json["variables"] = VariablesJson(partitioned.variables);
  json["heads"] = HeadsJson(partitioned.heads);
  json["fetched_bytes"] = std::accumulate(fetched.begin(), fetched.end(), int64_t{0});
  json["fetched_bytes_per_worker"] = fetched;
  json["shared_bytes"] = partitioned.shared_bytes;
  return json;
}

std::string WritePartitioned(const Partitioned& partitioned) {
  return WithMember(PartitionedJson(partitioned), "graph", WriteGraph(partitioned.graph));
}

Partitioned ReadPartitioned(const std::string& json) {
  const JsonDocument document =
      ParseJson(json, Blame::kGraph, "partitioned graph", "partition the graph anew");
  const JsonCursor root(document);
  if (root.At("format").String() != kFormatId) {
    root.At("format").Fail(std::string("\"") + kFormatId + "\"");
  }
  root.At("version").Int(kVersion, kVersion);
  Partitioned partitioned;
  partitioned.workers = static_cast<int>(root.At("workers").Int(1, kMaxWorkers));
  partitioned.graph = ReadGraph(root.At("graph"));
  ReadNodeWorkers(&partitioned);
  ReadVariables(root.At("variables"), &partitioned);
  ReadHeads(root.At("heads"), &partitioned);
  partitioned.fetched_bytes_per_worker = ReadNumbers(root.At("fetched_bytes_per_worker"));
  partitioned.shared_bytes =
      root.At("shared_bytes").Int(0, std::numeric_limits<int64_t>::max());
  return partitioned;
}

std::string DumpGraph(const Graph& graph) {
  std::string text;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& n = graph.nodes[node];
    const auto context = n.attrs.find(kContextAttr);
    text += n.name + "  " + (n.is_variable() ? "variable" : n.op) + "  " +
            (context == n.attrs.end() ? "-" : context->second);
    for (int output = 0; output < n.num_outputs; ++output) {
      const NodeEntry entry{node, output};
      text +=
          (output == 0 ? "  " : ", ") + ShapeText(graph.shape(entry), graph.dtype(entry));
    }
    for (size_t slot = 0; slot < n.inputs.size(); ++slot) {
      const NodeEntry input = n.inputs[slot];
      text += (slot == 0 ? "  <- " : ", ") + graph.nodes[input.node].name;
      if (graph.nodes[input.node].num_outputs > 1) {
        text += "." + std::to_string(input.index);
      }
    }
    text += '\n';
  }
  for (NodeEntry head : graph.heads) {
    text +=
        "head  " + graph.nodes[head.node].name + "." + std::to_string(head.index) + "\n";
  }
  return text;
}

}  // namespace tofu
