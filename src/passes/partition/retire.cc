#include "passes/partition/retire.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fetch/fetch_nodes.h"

namespace tofu {
namespace {

// The nodes that some head needs.
std::vector<bool> LiveNodes(const Graph& graph) {
  std::vector<bool> live(graph.num_nodes(), false);
  for (NodeEntry head : graph.heads) live[head.node] = true;
  for (int node = graph.num_nodes() - 1; node >= 0; --node) {
    if (!live[node]) continue;
    for (NodeEntry input : graph.nodes[node].inputs) live[input.node] = true;
  }
  return live;
}

// The fetches that read each publication, for all that a head needs, in order.
std::map<int, std::vector<int>> ReadersOf(const Graph& graph) {
  const std::vector<bool> live = LiveNodes(graph);
  std::map<int, std::vector<int>> readers;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (!live[node] || graph.nodes[node].op != kMultiFetchOp) continue;
    for (NodeEntry input : graph.nodes[node].inputs) {
      if (graph.nodes[input.node].op == kPublishOp) readers[input.node].push_back(node);
    }
  }
  return readers;
}

}  // namespace

int Retire(GraphBuilder* builder) {
  std::vector<NodeEntry> retired;
  for (const auto& [publish, readers] : ReadersOf(builder->graph())) {
    const std::vector<NodeEntry> tiles = builder->graph().nodes[publish].inputs;
    Node retire;
    retire.op = kRetireOp;
    retire.name = builder->graph().nodes[tiles[0].node].name + "/retire" +
                  std::to_string(tiles[0].index);
    retire.inputs = tiles;
    retire.inputs.push_back({publish, 0});
    for (int reader : readers) {
      retire.inputs.push_back(Acknowledgement(builder->graph(), reader));
      if (IsDirect(builder->graph().nodes[reader])) retire.attrs[kDirectAttr] = "1";
    }
    retire.attrs[kNumArgsAttr] = std::to_string(retire.inputs.size());
    retire.attrs[kNumTilesAttr] = std::to_string(tiles.size());
    retired.push_back({builder->Add(std::move(retire), builder->worker(tiles[0]), {{1}},
                                    {kHandleDtype}),
                       0});
  }
  std::vector<NodeEntry>& heads = builder->graph().heads;
  heads.insert(heads.begin(), retired.begin(), retired.end());
  return static_cast<int>(retired.size());
}

}  // namespace tofu
