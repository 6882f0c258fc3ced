#include "passes/schedule/control_deps.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mxnet/dialect/dialect.h"

namespace tofu {

void AddControlDeps(Graph* graph) {
  std::map<std::string, std::vector<int>> since;  // by the attribute that places a node
  for (int number = 0; number < graph->num_nodes(); ++number) {
    Node& node = graph->nodes[number];
    if (node.is_variable()) continue;
    std::vector<int>& before = since[node.attrs[kContextAttr]];
    if (TakesControlDeps(node)) node.control_deps = std::exchange(before, {});
    before.push_back(number);
  }
}

}  // namespace tofu
