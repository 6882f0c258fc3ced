// Time models of example graphs, for tests of searches for time.
#ifndef TOFU_TESTS_CPP_SUPPORT_EXAMPLE_TIME_MODEL_H_
#define TOFU_TESTS_CPP_SUPPORT_EXAMPLE_TIME_MODEL_H_

#include <vector>

#include "graph/graph.h"
#include "graph/head_roles.h"
#include "passes/search/cost/time_cost.h"
#include "support/example_machine.h"

namespace tofu {

// Two groups of devices, the outer link slow, with latencies and costs of the host.
inline Machine TwoHosts(int devices, bool is_gpu) {
  Machine machine = is_gpu ? ExampleGpus(devices) : ExampleMachine(devices);
  machine.device.launch_s = 3;
  machine.host.push_s = 0.5;
  machine.links[0].devices = devices / 2;
  machine.links[0].latency_s = 0.25;
  machine.links[0].bytes_per_s = RateTable({{1, 4}, {64, 40}});
  machine.links[0].port_bytes_per_s = 30;
  LinkLevel outer = machine.links[0];
  outer.name = "outer";
  outer.devices = devices;
  outer.latency_s = 2;
  outer.bytes_per_s = RateTable({{1, 1}, {64, 8}});
  outer.port_bytes_per_s = 6;
  outer.group_bytes_per_s = 20;
  machine.links.push_back(outer);
  return machine;
}

// Eight devices: a third level of links between two groups of two groups, slower again.
inline Machine ThreeLevels(bool is_gpu) {
  Machine machine = TwoHosts(8, is_gpu);
  machine.links[0].devices = 2;
  machine.links[1].devices = 4;
  LinkLevel outer = machine.links[1];
  outer.name = "outermost";
  outer.devices = 8;
  outer.latency_s = 4;
  outer.bytes_per_s = RateTable({{1, 0.25}, {64, 2}});
  outer.port_bytes_per_s = 3;
  outer.group_bytes_per_s = 10;
  machine.links.push_back(outer);
  return machine;
}

// A model with some FLOPs for each element that a node writes; equal operators have equal
// kinds.
inline TimeModel ModelOf(const Graph& graph, const Machine& machine) {
  TimeModel model{machine, {}};
  for (int node = 0; node < graph.num_nodes(); ++node) {
    Work work;
    work.kind =
        static_cast<OperatorKind>(graph.nodes[node].op.text().size() % kNumOperatorKinds);
    for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
      work.flops += 7.0 * static_cast<double>(NumElements(graph.shape({node, i})));
    }
    model.works.push_back(work);
  }
  return model;
}

// [entry]: whether it is a parameter.
inline std::vector<bool> Parameters(const Graph& graph) {
  std::vector<bool> is_parameter(static_cast<size_t>(graph.num_entries()), false);
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (VariableRole(graph.nodes[node]) != "parameter") continue;
    is_parameter[graph.first_entry[node]] = true;
  }
  return is_parameter;
}

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_EXAMPLE_TIME_MODEL_H_
