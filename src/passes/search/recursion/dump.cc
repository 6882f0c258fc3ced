#include "passes/search/recursion/dump.h"

#include <map>
#include <sstream>

#include "graph/box.h"
#include "graph/names.h"

namespace tofu {
namespace {

std::string ShapeText(const Shape& shape) {
  std::string text = "(";
  for (size_t d = 0; d < shape.size(); ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  }
  return text + ")";
}

std::string CutsText(const Cuts& cuts) {
  std::string text;
  for (int cut : cuts) {
    text += ' ' + (IsCut(cut) ? std::to_string(cut) : cut == kTerms ? "terms" : "-");
  }
  return text;
}

}  // namespace

std::string DumpGroups(const Graph& graph, const Groups& groups) {
  std::map<int, std::vector<int>> operators;
  std::map<int, std::vector<std::string>> tensors;
  std::vector<std::string> alone;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& n = graph.nodes[node];
    if (n.is_variable()) continue;
    if (groups.op_group[node] >= 0) {
      operators[groups.op_group[node]].push_back(node);
    } else if (groups.node_tensor[node] >= 0) {
      tensors[groups.node_tensor[node]].push_back("operator " + n.name);
    } else {
      alone.push_back(n.name);
    }
  }
  for (int entry = 0; entry < graph.num_entries(); ++entry) {
    const int group = groups.tensor_group[entry];
    if (group >= 0 && group != entry) tensors[group].push_back(EntryName(graph, entry));
  }
  std::ostringstream text;
  text << operators.size() << " groups of operators\n";
  for (const auto& [forward, nodes] : operators) {
    text << "  " << graph.nodes[forward].name << " (" << graph.nodes[forward].op << ")";
    for (int node : nodes) {
      if (node != forward) text << " + " << graph.nodes[node].name;
    }
    text << '\n';
  }
  text << tensors.size() << " groups of tensors with gradients\n";
  for (const auto& [entry, members] : tensors) {
    text << "  " << EntryName(graph, entry);
    for (const std::string& member : members) text << " + " << member;
    text << '\n';
  }
  for (const std::string& name : alone) text << "in no group: " << name << '\n';
  return text.str();
}

std::string DumpClasses(const Graph& graph, const CoarseGraph& coarse) {
  std::ostringstream text;
  text << graph.num_entries() << " tensors in " << coarse.tensors.size() << " classes\n";
  for (size_t c = 0; c < coarse.tensors.size(); ++c) {
    text << "  t" << c << ' ' << ShapeText(coarse.tensors[c].shape) << ':';
    for (int entry : coarse.tensors[c].entries) text << ' ' << EntryName(graph, entry);
    text << '\n';
  }
  text << coarse.operators.size() << " classes of operators\n";
  for (size_t p = 0; p < coarse.operators.size(); ++p) {
    const OpClass& op = coarse.operators[p];
    text << "  p" << p << " x" << op.nodes.size()
         << (op.elementwise ? " element-wise:" : ":");
    for (int node : op.nodes) text << ' ' << graph.nodes[node].name;
    text << " |";
    for (const OpSlot& slot : op.slots) {
      text << (slot.is_output ? " ->t" : " t") << slot.tensor_class;
    }
    text << '\n';
  }
  return text.str();
}

std::string DumpSearch(const CoarseGraph& coarse, const SearchResult& found,
                       const std::vector<int>& parts, int64_t cost_before,
                       const std::string& unit) {
  std::ostringstream text;
  text << "cut in " << parts.back() << ": " << found.cost - cost_before << ' ' << unit
       << " more, " << found.cost << " so far, at least " << found.lower_bound
       << " so far; "
       << (found.status == EliminateStatus::kOptimal ? "optimal" : "feasible") << " over "
       << found.num_variables << " variables\n";
  for (size_t c = 0; c < found.cuts.tensors.size(); ++c) {
    text << "  t" << c << ' ' << ShapeText(coarse.tensors[c].shape) << ':'
         << CutsText(found.cuts.tensors[c]) << '\n';
  }
  return text.str();
}

std::string DumpImprovement(int64_t recursion, int64_t improved, int64_t lower_bound,
                            const std::string& unit) {
  std::ostringstream text;
  text << "recursion: " << recursion << ' ' << unit << "\nimproved: " << improved << ' '
       << unit << "\nno plan of these steps: less than " << lower_bound << ' ' << unit
       << '\n';
  return text.str();
}

std::string DumpPlan(const Graph& graph, const StrategyTable& table, const Plan& plan) {
  std::ostringstream text;
  text << plan.workers() << " workers, " << plan.total_bytes() << " bytes\n";
  for (int node = 0; node < graph.num_nodes(); ++node) {
    text << graph.nodes[node].name;
    if (!graph.nodes[node].is_variable()) {
      text << " (" << graph.nodes[node].op << ") split";
      for (int var : plan.op_cuts[node]) {
        text << ' ' << (var == kReplicated ? "-" : table.row(node)->vars[var].name);
      }
      text << ", " << plan.node_bytes[node] << " bytes";
    }
    text << ':';
    for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
      text << (i == 0 ? " " : "; ") << ShapeText(graph.shape({node, i})) << " cut"
           << CutsText(plan.tensor_cuts[graph.entry_id({node, i})]);
    }
    text << '\n';
  }
  return text.str();
}

}  // namespace tofu
