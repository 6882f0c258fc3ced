#include "passes/schedule/control_deps.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

// MXNet takes the first dependency of a backward operator as its forward operator, and
// its shapes from there. Backward operators have "backward" in their names; two others
// are registered as such.
bool MayDepend(const Node& node) {
  return node.op.find("backward") == std::string::npos && node.op != "gather_nd" &&
         node.op != "scatter_nd";
}

}  // namespace

void AddControlDeps(Graph* graph) {
  std::map<std::string, std::vector<int>> since;  // by the attribute that places a node
  for (int number = 0; number < graph->num_nodes(); ++number) {
    Node& node = graph->nodes[number];
    if (node.is_variable()) continue;
    std::vector<int>& before = since[node.attrs[kContextAttr]];
    if (MayDepend(node)) node.control_deps = std::exchange(before, {});
    before.push_back(number);
  }
}

}  // namespace tofu
