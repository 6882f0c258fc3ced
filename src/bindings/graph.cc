// Graph, Node and StrategyTable for Python.

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/documents.h"
#include "fetch/fetch_nodes.h"
#include "graph/between.h"
#include "graph/names.h"
#include "passes/partition/graph_builder.h"

namespace py = pybind11;

namespace tofu {
namespace {

py::list Inputs(const NodeView& view) {
  py::list tensors;
  for (NodeEntry input : view.node().inputs) {
    tensors.append(
        py::make_tuple(ShapeTuple(view.graph->shape(input)), view.graph->dtype(input)));
  }
  return tensors;
}

py::list Outputs(const NodeView& view) {
  py::list tensors;
  for (int i = 0; i < view.node().num_outputs; ++i) {
    const NodeEntry entry{view.number, i};
    tensors.append(
        py::make_tuple(ShapeTuple(view.graph->shape(entry)), view.graph->dtype(entry)));
  }
  return tensors;
}

// Node and output of each, in Python's form.
py::list EntryList(const std::vector<NodeEntry>& entries) {
  py::list pairs;
  for (NodeEntry entry : entries) pairs.append(py::make_tuple(entry.node, entry.index));
  return pairs;
}

// Combine's values, in their order.
constexpr std::array<const char*, 5> kReductions = {"sum", "max", "min", "prod",
                                                    "logsumexp"};

// (input or -1, term, its corner there, its corner in the region, extents)
py::list Pieces(const MultiFetchSpec& spec, int first_input) {
  py::list pieces;
  for (const TilePiece& piece : spec.pieces) {
    const bool is_fill = piece.source == kNoSource;
    pieces.append(py::make_tuple(is_fill ? kNoSource : first_input + piece.source,
                                 piece.term, ShapeTuple(piece.from), ShapeTuple(piece.to),
                                 ShapeTuple(piece.extents)));
  }
  return pieces;
}

// (reduction, number of terms, fill, pieces) of each region that a fetch assembles.
py::list Regions(const NodeView& view) {
  py::list regions;
  if (view.node().op != kMultiFetchOp) return regions;
  const FetchBundle bundle = BundleOf(view.node());
  int first_input = 0;
  for (const MultiFetchSpec& spec : bundle) {
    regions.append(py::make_tuple(kReductions.at(static_cast<size_t>(spec.reduce)),
                                  spec.num_terms, spec.fill, Pieces(spec, first_input)));
    first_input += static_cast<int>(spec.sources.size());
  }
  return regions;
}

// Context groups, and the first node of each.
std::map<std::string, std::string> Contexts(const Graph& graph) {
  std::map<std::string, std::string> contexts;
  for (const Node& node : graph.nodes) contexts.emplace(node.group.text(), node.name);
  return contexts;
}

std::vector<std::pair<std::string, std::string>> Variables(const Graph& graph) {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const Node& node : graph.nodes) {
    if (node.is_variable()) variables.emplace_back(node.name, node.group.text());
  }
  return variables;
}

// Name and context group of every node, if some of them read other groups' arrays
// themselves; else nothing.
std::vector<std::pair<std::string, std::string>> Placements(const Graph& graph) {
  std::vector<std::pair<std::string, std::string>> placements;
  if (!std::any_of(graph.nodes.begin(), graph.nodes.end(), IsDirect)) return placements;
  for (const Node& node : graph.nodes) {
    placements.emplace_back(node.name, node.group.text());
  }
  return placements;
}

std::vector<std::string> TensorNames(const Graph& graph) {
  std::vector<std::string> names;
  for (int e = 0; e < graph.num_entries(); ++e) names.push_back(EntryName(graph, e));
  return names;
}

int64_t TensorBytes(const Graph& graph) {
  int64_t bytes = 0;
  for (int e = 0; e < graph.num_entries(); ++e) {
    bytes += NumElements(graph.shapes[e]) * DtypeBytes(graph.dtypes[e]);
  }
  return bytes;
}

// Whether the framework copies a tensor to another context group.
bool HasCopies(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return !IsDirect(node) &&
           std::any_of(node.inputs.begin(), node.inputs.end(), [&](NodeEntry input) {
             return graph.nodes[input.node].group != node.group;
           });
  });
}

py::list NodesOf(const std::shared_ptr<Graph>& graph, const std::set<std::string>& ops) {
  py::list nodes;
  for (int i = 0; i < graph->num_nodes(); ++i) {
    if (ops.count(graph->nodes[i].op) > 0) nodes.append(NodeView{graph, i});
  }
  return nodes;
}

py::list AllNodes(const std::shared_ptr<Graph>& graph) {
  py::list nodes;
  for (int i = 0; i < graph->num_nodes(); ++i) nodes.append(NodeView{graph, i});
  return nodes;
}

// A copy with these context groups and control dependencies of its nodes.
std::shared_ptr<Graph> Placed(const Graph& graph, const std::vector<std::string>& groups,
                              const std::vector<std::vector<int>>& control_deps) {
  const size_t count = graph.nodes.size();
  if (groups.size() != count || control_deps.size() != count) {
    throw py::value_error("expected a group and control dependencies for every node");
  }
  auto placed = std::make_shared<Graph>(graph);
  for (size_t node = 0; node < count; ++node) {
    placed->nodes[node].group = groups[node];
    placed->nodes[node].control_deps = control_deps[node];
  }
  return placed;
}

std::optional<Graph> AtSize(const Graph& graph, int64_t size, const Graph& other,
                            int64_t other_size, int64_t wanted_size) {
  if (size == other_size) throw py::value_error("expected graphs of two sizes");
  return GraphAt({graph, size}, {other, other_size}, wanted_size);
}

std::vector<std::string> Undescribed(const GraphTable& table) {
  std::vector<std::string> ops;
  std::unordered_set<std::string> seen;
  for (int node = 0; node < table.graph->num_nodes(); ++node) {
    const std::string& op = table.graph->nodes[node].op;
    if (!op.empty() && table.table.row(node) == nullptr && seen.insert(op).second) {
      ops.push_back(op);
    }
  }
  return ops;
}

}  // namespace

void BindGraph(py::module_* module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<NodeView>(*module, "Node", "A node of a graph.")
      .def_property_readonly("op", [](const NodeView& v) { return v.node().op.text(); })
      .def_property_readonly("name", [](const NodeView& v) { return v.node().name; })
      .def_property_readonly("attrs",
                             [](const NodeView& v) { return AllAttrs(v.node()).map(); })
      .def_property_readonly("inputs", &Inputs)
      .def_property_readonly("outputs", &Outputs)
      .def_property_readonly("sources",
                             [](const NodeView& v) { return EntryList(v.node().inputs); })
      .def_property_readonly("regions", &Regions)
      .def_property_readonly("control_deps",
                             [](const NodeView& v) { return v.node().control_deps; });
  py::class_<Graph, std::shared_ptr<Graph>>(*module, "Graph", "A graph of operators.")
      // Not `unlocked`: pybind11 registers a new object under a constructor's guard.
      .def(py::init([](const std::string& text) {
             const py::gil_scoped_release unlock;
             return std::make_shared<Graph>(ReadGraph(text));
           }),
           py::arg("text"))
      .def("to_json", &WriteGraph, unlocked)
      .def("to_symbol_json", &WriteSymbol, unlocked)
      .def_property_readonly("hash", &GraphHash)
      .def_property_readonly("nodes", &AllNodes)
      .def("nodes_of", &NodesOf, py::arg("ops"))
      .def("at_size", &AtSize, py::arg("size"), py::arg("other"), py::arg("other_size"),
           py::arg("wanted_size"), unlocked)
      .def("placed", &Placed, py::arg("groups"), py::arg("control_deps"))
      .def_property_readonly("heads", [](const Graph& g) { return EntryList(g.heads); })
      .def_property_readonly("head_roles", [](const Graph& g) { return g.head_roles; })
      .def_property_readonly("tensor_names", &TensorNames)
      .def_property_readonly("tensor_bytes", &TensorBytes)
      .def_property_readonly("contexts", &Contexts)
      .def_property_readonly("variables", &Variables)
      .def_property_readonly("placements", &Placements)
      .def_property_readonly("has_copies", &HasCopies);
  py::class_<GraphTable, std::shared_ptr<GraphTable>>(*module, "StrategyTable",
                                                      "How a graph can be partitioned.")
      .def(py::init([](const std::string& text, const std::shared_ptr<Graph>& graph) {
             const py::gil_scoped_release unlock;
             return std::make_shared<GraphTable>(
                 GraphTable{graph, ReadStrategyTable(text, *graph)});
           }),
           py::arg("text"), py::arg("graph"))
      .def_property_readonly("graph", [](const GraphTable& t) { return Held(t.graph); })
      .def_property_readonly("undescribed", &Undescribed);
  module->attr("expected_table_version") = kStrategyTableVersion;
}

}  // namespace tofu
