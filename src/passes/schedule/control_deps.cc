#include "passes/schedule/control_deps.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "mxnet/dialect/dialect.h"

namespace tofu {

void AddControlDeps(Graph* graph) {
  std::unordered_map<Name, std::vector<int>> since;  // by group
  for (int number = 0; number < graph->num_nodes(); ++number) {
    Node& node = graph->nodes[number];
    if (node.is_variable()) continue;
    std::vector<int>& before = since[node.group];
    if (TakesControlDeps(node)) node.control_deps = std::exchange(before, {});
    before.push_back(number);
  }
}

}  // namespace tofu
