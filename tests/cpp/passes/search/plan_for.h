// Plans of example graphs.
#ifndef TOFU_TESTS_PASSES_SEARCH_PLAN_FOR_H_
#define TOFU_TESTS_PASSES_SEARCH_PLAN_FOR_H_

#include <string>
#include <vector>

#include "passes/search/make_plan.h"
#include "support/example_graphs.h"

namespace tofu {

// The plan that a mode finds; `parts` fixes the workers of each step.
inline Plan PlanFor(ExampleGraph* example, int workers, const std::string& mode = "tofu",
                    const std::vector<int>& parts = {}) {
  PlanOptions options;
  options.workers = workers;
  options.mode = mode;
  options.parts = parts;
  return MakePlan(example->graph(), example->table(), options);
}

}  // namespace tofu

#endif  // TOFU_TESTS_PASSES_SEARCH_PLAN_FOR_H_
