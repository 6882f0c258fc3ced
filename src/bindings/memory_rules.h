// The ways in which a graph calls its operators, and what these do in place, as Python
// gives them.
#ifndef TOFU_BINDINGS_MEMORY_RULES_H_
#define TOFU_BINDINGS_MEMORY_RULES_H_

#include <tuple>
#include <utility>
#include <vector>

#include "bindings/documents.h"
#include "passes/memory/executor_memory.h"
#include "passes/memory/operator_uses.h"

namespace tofu {

struct GraphUses {
  SharedGraph graph;
  OperatorUses uses;
};

// One rule per way: pairs (input, output, identity), and ignored inputs.
using Rule = std::pair<std::vector<std::tuple<int, int, bool>>, std::vector<int>>;

inline MemoryTable TableOf(const OperatorUses& uses, const std::vector<Rule>& rules) {
  MemoryTable table;
  table.node_rules = uses.node_uses;
  for (const auto& [pairs, ignored] : rules) {
    MemoryRule rule;
    for (const auto& [input, output, identity] : pairs) {
      rule.pairs.push_back({input, output, identity});
    }
    rule.ignored_inputs = ignored;
    table.rules.push_back(std::move(rule));
  }
  return table;
}

}  // namespace tofu

#endif  // TOFU_BINDINGS_MEMORY_RULES_H_
