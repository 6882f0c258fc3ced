#include "passes/schedule/control_deps.h"

#include <numeric>
#include <utility>

#include "mxnet/dialect/dialect.h"

namespace tofu {

void AddControlDeps(Graph* graph) {
  if (graph->nodes.empty()) return;
  const Shape shape = {1};
  const int dtype = 0;
  Node order = FillNode(shape, dtype, "0");
  order.name = "tofu_order";
  order.group = graph->nodes[0].group;
  order.control_deps.resize(graph->nodes.size());
  std::iota(order.control_deps.begin(), order.control_deps.end(), 0);
  graph->heads.insert(graph->heads.begin(), NodeEntry{graph->num_nodes(), 0});
  graph->nodes.push_back(std::move(order));
  graph->shapes.push_back(shape);
  graph->dtypes.push_back(dtype);
  IndexEntries(graph);
}

}  // namespace tofu
