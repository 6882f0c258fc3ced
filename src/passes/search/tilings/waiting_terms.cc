#include "passes/search/tilings/waiting_terms.h"

#include <algorithm>
#include <cstddef>

#include "graph/box.h"

namespace tofu {
namespace {

// Whether the operator leaves terms in one of its outputs at this step.
bool MakesTerms(const StrategyRow& row, const OpClass& op, int cut) {
  return std::any_of(op.slots.begin(), op.slots.end(), [&](const OpSlot& slot) {
    return slot.is_output && slot.index < static_cast<int>(row.outputs.size()) &&
           row.outputs[slot.index].reduce.count(cut) > 0;
  });
}

// Returns whether a tensor became terms.
bool LetWait(const StrategyRow& row, const CoarseGraph& coarse,
             const std::vector<Cuts>& fixed, size_t number, size_t step,
             ClassCuts* cuts) {
  const OpClass& op = coarse.operators[number];
  int& cut = cuts->operators[number][step];
  for (const OpSlot& slot : op.slots) {
    const bool has_terms = cuts->tensors[slot.tensor_class][step] == kTerms;
    if (op.adds_terms && !slot.is_output && has_terms) cut = row.terms;
  }
  if (!MakesTerms(row, op, cut)) return false;
  bool changed = false;
  for (const OpSlot& slot : op.slots) {
    int& of_tensor = cuts->tensors[slot.tensor_class][step];
    const bool is_free = fixed[slot.tensor_class][step] == kFree;
    if (!slot.is_output || !coarse.tensors[slot.tensor_class].may_wait || !is_free) {
      continue;
    }
    changed = changed || of_tensor != kTerms;
    of_tensor = kTerms;
  }
  return changed;
}

}  // namespace

// Operators are in the graph's order, but a class may have tensors of later ones.
void LetSumsWait(const StrategyTable& table, const CoarseGraph& coarse,
                 const std::vector<Cuts>& fixed, ClassCuts* cuts) {
  const size_t steps = cuts->tensors.empty() ? 0 : cuts->tensors[0].size();
  for (size_t step = 0; step < steps; ++step) {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t p = 0; p < coarse.operators.size(); ++p) {
        const StrategyRow* row = table.row(coarse.operators[p].nodes[0]);
        if (coarse.operators[p].elementwise || row == nullptr) continue;
        changed = LetWait(*row, coarse, fixed, p, step, cuts) || changed;
      }
    }
  }
}

}  // namespace tofu
