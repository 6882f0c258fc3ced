#include "solver/wanted_values.h"

#include <gtest/gtest.h>

#include <string>

#include "solver/random_problem.h"

namespace tofu {
namespace {

TEST(WantedValues, NoValueOfACheaperChoiceIsLost) {
  int removed = 0;
  for (int seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ChoiceProblem problem = RandomProblem(seed);
    int64_t least = kForbidden;
    ForEachChoice(problem.domain, [&](const std::vector<int>& values) {
      least = std::min(least, problem.Cost(values));
    });
    if (least >= kForbidden) continue;
    for (const int64_t top : {least, least + 1, least + 3}) {
      const ValueMask wanted = WantedValues(problem, top, 30, Deadline::max());
      ForEachChoice(problem.domain, [&](const std::vector<int>& values) {
        if (problem.Cost(values) >= top) return;
        for (size_t v = 0; v < values.size(); ++v) ASSERT_TRUE(wanted[v][values[v]]);
      });
      for (const auto& values : wanted) {
        for (char is_wanted : values) removed += !is_wanted;
      }
    }
  }
  EXPECT_GT(removed, 1000);
}

}  // namespace
}  // namespace tofu
