#include "graph/names.h"

#include <algorithm>

namespace tofu {

std::string EntryName(const Graph& graph, int entry) {
  const auto it =
      std::upper_bound(graph.first_entry.begin(), graph.first_entry.end(), entry);
  const int node = static_cast<int>(it - graph.first_entry.begin()) - 1;
  const int index = entry - graph.first_entry[node];
  const std::string& name = graph.nodes[node].name;
  return index == 0 ? name : name + "[" + std::to_string(index) + "]";
}

int FindEntry(const Graph& graph, const std::string& name) {
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& n = graph.nodes[node];
    if (name == n.name) return graph.first_entry[node];
    if (name.compare(0, n.name.size() + 1, n.name + "[") != 0) continue;
    for (int i = 0; i < n.num_outputs; ++i) {
      if (name.substr(n.name.size()) == "[" + std::to_string(i) + "]") {
        return graph.first_entry[node] + i;
      }
    }
  }
  return -1;
}

}  // namespace tofu
