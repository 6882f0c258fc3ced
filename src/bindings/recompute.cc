// Recomputation of activations, for Python.
#include "passes/recompute/recompute.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/documents.h"
#include "graph/lives/draws.h"
#include "graph/lives/repeats.h"

namespace py = pybind11;

namespace tofu {
namespace {

py::dict Recompute(const GraphTable& table, const std::vector<int64_t>& costs,
                   int64_t limit_bytes) {
  Recomputed recomputed;
  {
    const py::gil_scoped_release unlock;
    recomputed = RecomputeActivations(*table.graph, table.table, {costs, limit_bytes});
  }
  py::dict result;
  auto graph = std::make_shared<Graph>(std::move(recomputed.graph));
  result["table"] = std::make_shared<GraphTable>(
      GraphTable{std::move(graph), std::move(recomputed.table)});
  result["segments"] = recomputed.num_segments;
  result["repeated"] = recomputed.num_repeated;
  result["saved_bytes"] = recomputed.saved_bytes;
  result["bytes"] = recomputed.bytes;
  result["cost"] = recomputed.cost;
  return result;
}

}  // namespace

void BindRecompute(py::module_* module) {
  module->def("recompute", &Recompute, py::arg("table"), py::kw_only(), py::arg("costs"),
              py::arg("limit_bytes") = 0,
              "Run parts of the forward pass again in the backward pass.");
  module->attr("once_attribute") = kOnceAttr;
  module->attr("repeats_attribute") = kRepeatsAttr;
}

}  // namespace tofu
