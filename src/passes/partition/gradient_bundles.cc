#include "passes/partition/gradient_bundles.h"

#include <cstdint>
#include <map>

#include "graph/head_roles.h"

namespace tofu {
namespace {

// The most bytes of small gradients that are fetched together. Their terms live until
// then.
constexpr int64_t kMostBytes = 1 << 14;

// The fetches that make gradients, each with its heads.
std::map<int, std::vector<size_t>> GradientFetches(const WorkerProgram& program) {
  std::map<int, std::vector<size_t>> fetches;
  for (size_t head = 0; head < program.heads.size(); ++head) {
    const ProgramHead& each = program.heads[head];
    const bool is_fetched = program.steps[each.made_by].kind == ProgramStep::Kind::kFetch;
    if (is_fetched && RoleKind(each.role) == kGradientKind) {
      fetches[each.made_by].push_back(head);
    }
  }
  return fetches;
}

bool HaveTheSameTerms(const ProgramStep& a, const ProgramStep& b) {
  return a.source.step == b.source.step && a.pattern == b.pattern;
}

}  // namespace

std::vector<int> GradientBundles(const WorkerProgram& first) {
  std::vector<int> bundles(first.heads.size(), -1);
  int bundle = -1;
  int64_t bytes = 0;  // of the bundle
  const ProgramStep* last = nullptr;
  for (const auto& [fetch, heads] : GradientFetches(first)) {
    const ProgramStep& step = first.steps[fetch];
    bytes += NumElements(step.shapes[0]) * DtypeBytes(step.dtypes[0]);
    const bool joins =
        last != nullptr && (bytes <= kMostBytes || HaveTheSameTerms(step, *last));
    if (!joins) {
      ++bundle;
      bytes = NumElements(step.shapes[0]) * DtypeBytes(step.dtypes[0]);
    }
    for (size_t head : heads) bundles[head] = bundle;
    last = &step;
  }
  return bundles;
}

}  // namespace tofu
