#include "bindings/plan_rows.h"

#include <string>
#include <vector>

#include "graph/cuts.h"

namespace py = pybind11;

namespace tofu {
namespace {

py::tuple CutsTuple(const std::vector<int>& cuts) {
  py::tuple tuple(cuts.size());
  for (size_t step = 0; step < cuts.size(); ++step) tuple[step] = py::int_(cuts[step]);
  return tuple;
}

py::list Stops(const std::vector<TileSplits>& stops) {
  py::list list;
  for (const TileSplits& splits : stops) {
    py::list stop;
    for (const TileSplit& split : splits) {
      stop.append(py::dict(py::arg("step") = split.step, py::arg("dim") = split.dim));
    }
    list.append(stop);
  }
  return list;
}

}  // namespace

py::list StepsOf(const TablePlan& plan) {
  py::list steps;
  int64_t groups = 1;
  for (size_t step = 0; step < plan.plan.parts.size(); ++step) {
    const int parts = plan.plan.parts[step];
    steps.append(py::make_tuple(parts, groups, plan.plan.step_bytes[step]));
    groups *= parts;
  }
  return steps;
}

py::list TensorsOf(const TablePlan& plan) {
  const Graph& graph = plan.graph();
  py::list tensors;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const py::str name(graph.nodes[node].name);
    for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
      const NodeEntry entry{node, i};
      tensors.append(
          py::make_tuple(name, i, ShapeTuple(graph.shape(entry)), graph.dtype(entry),
                         CutsTuple(plan.plan.tensor_cuts[graph.entry_id(entry)])));
    }
  }
  return tensors;
}

py::list OperatorsOf(const TablePlan& plan) {
  const Graph& graph = plan.graph();
  py::list operators;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& n = graph.nodes[node];
    if (n.is_variable()) continue;
    const std::vector<int>& cuts = plan.plan.op_cuts[node];
    py::tuple splits(cuts.size());
    for (size_t step = 0; step < cuts.size(); ++step) {
      splits[step] = py::none();
      if (cuts[step] == kReplicated) continue;
      splits[step] = py::str(plan.strategies().row(node)->vars[cuts[step]].name);
    }
    operators.append(py::make_tuple(n.name, n.op, splits, plan.plan.node_bytes[node]));
  }
  return operators;
}

py::object PredictedOf(const TablePlan& plan) {
  if (!plan.plan.predicted) return py::none();
  const PredictedTime& time = *plan.plan.predicted;
  py::list links;
  for (const PredictedTime::Link& link : time.links) {
    links.append(py::dict(py::arg("name") = link.name, py::arg("bytes") = link.bytes));
  }
  py::dict record(py::arg("machine") = time.machine, py::arg("step_ns") = time.step_ns,
                  py::arg("compute_ns") = time.compute_ns,
                  py::arg("fetch_ns") = time.fetch_ns,
                  py::arg("hidden_ns") = time.hidden_ns,
                  py::arg("host_ns") = time.host_ns, py::arg("links") = links);
  if (time.relayed_bytes != 0) record["relayed_bytes"] = time.relayed_bytes;
  if (time.lower_bound_ns >= 0) record["lower_bound_ns"] = time.lower_bound_ns;
  return record;
}

py::list RoutesOf(const TablePlan& plan) {
  py::list routes;
  for (const Route& route : plan.plan.routes) {
    routes.append(py::dict(py::arg("node") = plan.graph().nodes[route.node].name,
                           py::arg("input") = route.input,
                           py::arg("stops") = Stops(route.stops)));
  }
  return routes;
}

py::list OutputRoutesOf(const TablePlan& plan) {
  py::list routes;
  for (const OutputRoute& route : plan.plan.output_routes) {
    routes.append(py::dict(py::arg("node") = plan.graph().nodes[route.node].name,
                           py::arg("output") = route.output,
                           py::arg("partial") = Stops(route.partial),
                           py::arg("stops") = Stops(route.stops)));
  }
  return routes;
}

}  // namespace tofu
