#include "solver/problem/read_problem.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace tofu {
namespace {

constexpr const char* kOwn = R"({"format": "tofu-step-problem", "version": 2,
  "constant": 7, "domains": [2, 3, 1], "unary": [[4, 5], [], [6]],
  "pairs": [[0, 1, [1, 2, 3, 4, 5, 6]], [1, 2, [0, 1e19, 0]]],
  "memory": {"limit": 9, "uses": [[0, 1, 4, [2, 3]], [1, 2, 2, [8, 8, 8]]]}})";

TEST(ReadProblem, ReadsOurFormat) {
  const ProblemText read = ReadProblem(kOwn);
  const ChoiceProblem& problem = read.problem;
  EXPECT_EQ(problem.domain, (std::vector<int>{2, 3, 1}));
  EXPECT_EQ(problem.Cost({1, 2, 0}), 7 + 5 + 6 + 6 + 0);
  EXPECT_EQ(problem.Cost({0, 1, 0}), kForbidden) << "1e19 is above what is allowed";
  EXPECT_EQ(problem.Limit(), 9);
  EXPECT_EQ(read.moments, (std::vector<int64_t>{1, 4}))
      << "a use that ends as it begins uses nothing";
  EXPECT_EQ(problem.PeakBytes({1, 0, 0}), 3);
}

TEST(ReadProblem, EqualTablesShareTheirCells) {
  const ChoiceProblem problem =
      ReadProblem(R"({"format": "tofu-step-problem", "version": 1, "constant": 0,
        "domains": [2, 2, 2], "unary": [[], [], []],
        "pairs": [[0, 1, [1, 2, 3, 4]], [1, 2, [1, 2, 3, 4]], [0, 2, [1, 2, 3, 5]]]})")
          .problem;
  const auto& pairs = problem.pairs;
  EXPECT_EQ(pairs[0].cost.pointer(), pairs[1].cost.pointer());
  EXPECT_NE(pairs[0].cost.pointer(), pairs[2].cost.pointer());
}

// Replaces `part` of a text, and returns the error.
std::string ErrorOf(std::string text, const std::string& part, const std::string& by) {
  const size_t at = text.find(part);
  if (at == std::string::npos) return "no \"" + part + "\" to replace";
  text.replace(at, part.size(), by);
  try {
    ReadProblem(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

void ExpectError(const char* text, const std::string& part, const std::string& by,
                 const std::string& where, const std::string& expected) {
  const std::string error = ErrorOf(text, part, by);
  EXPECT_NE(error.find(where), std::string::npos) << error;
  EXPECT_NE(error.find(expected), std::string::npos) << error;
}

TEST(ReadProblem, SaysWhereATextIsWrongAndWhatWasExpected) {
  ExpectError(kOwn, "step-problem\"", "plan\"", "format", "\"tofu-step-problem\"");
  ExpectError(kOwn, "[4, 5]", "[4]", "unary[0]", "an array of 2");
  ExpectError(kOwn, "[4, 5]", "[4, -5]", "unary[0][1]", "an integer from 0 up");
  ExpectError(kOwn, "[4, 5], [], [6]", "[4, 5]", "unary", "an array of 3");
  ExpectError(kOwn, "[0, 1, [1", "[1, 1, [1", "pairs[0][1]", "another variable");
  ExpectError(kOwn, "[0, 1, 4, [2, 3]]", "[0, 1, [2, 3]]", "uses[0]", "a begin, an end");
  ExpectError(kOwn, "3]], [1, 2, 2", "4611686018427387904]], [1, 2, 3", "uses[1]",
              "2^62");
}

}  // namespace
}  // namespace tofu
