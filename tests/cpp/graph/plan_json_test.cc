#include "graph/plan_json.h"

#include <gtest/gtest.h>

#include <functional>

#include "graph/box.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

std::string ErrorOf(const std::string& text,
                    const std::function<void(const JsonCursor&)>& read) {
  try {
    const JsonDocument document = ParseJson(text, Blame::kPlan, "plan", "make it again");
    read(JsonCursor(document));
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

std::string PartsError(const std::string& text) {
  return ErrorOf(text, [](const JsonCursor& root) { ReadParts(root); });
}

TEST(PlanJson, PartsMultiplyToTheWorkers) {
  EXPECT_EQ(PartsError(R"({"parts": [3, 2], "workers": 6})"), "no error");
  EXPECT_EQ(PartsError(R"({"parts": [], "workers": 1})"), "no error");
  EXPECT_NE(PartsError(R"({"parts": [3, 2], "workers": 5})"), "no error");
  EXPECT_NE(PartsError(R"({"parts": [1, 6], "workers": 6})"), "no error");
  EXPECT_EQ(PartsError(R"({"parts": [128, 128], "workers": 16384})"), "no error");
  EXPECT_NE(PartsError(R"({"parts": [128, 128, 2], "workers": 32768})").find("at most"),
            std::string::npos);
}

TEST(PlanJson, StatusesAreReadAsTheyAreWritten) {
  for (PlanStatus status :
       {PlanStatus::kOptimal, PlanStatus::kStepsOptimal, PlanStatus::kFeasible}) {
    const std::string text = std::string(R"({"status": ")") + StatusText(status) + "\"}";
    EXPECT_EQ(
        ErrorOf(text,
                [&](const JsonCursor& root) { EXPECT_EQ(ReadStatus(root), status); }),
        "no error");
  }
  EXPECT_NE(
      ErrorOf(R"({"status": "best"})", [](const JsonCursor& root) { ReadStatus(root); }),
      "no error");
}

std::string TensorCutsError(const std::string& cuts, const Shape& shape,
                            bool may_wait = false) {
  return ErrorOf(R"({"cuts": )" + cuts + "}", [&](const JsonCursor& root) {
    ReadTensorCuts(root.At("cuts"), shape, {2, 2}, may_wait);
  });
}

TEST(PlanJson, ATensorIsCutWhereEveryPartGetsAnElement) {
  EXPECT_EQ(TensorCutsError("[0, 0]", {4, 3}), "no error");
  EXPECT_EQ(TensorCutsError("[0, -1]", {2, 3}), "no error");
  EXPECT_NE(TensorCutsError("[0, 0]", {3, 3}), "no error") << "1 is left";
  EXPECT_NE(TensorCutsError("[0, 2]", {4, 4}), "no error") << "no dimension 2";
  EXPECT_NE(TensorCutsError("[-2, 0]", {4, 4}), "no error");
  EXPECT_NE(TensorCutsError("[0]", {4, 4}), "no error") << "two steps";
}

TEST(PlanJson, OnlyATensorThatMayWaitIsTerms) {
  EXPECT_EQ(TensorCutsError(R"(["terms", 0])", {2, 3}, true), "no error");
  EXPECT_NE(TensorCutsError(R"(["terms", 0])", {2, 3}).find("no terms of a sum"),
            std::string::npos);
  EXPECT_NE(TensorCutsError(R"(["sums", 0])", {2, 3}, true), "no error");
}

TEST(PlanJson, AnOperatorIsSplitAlongVariablesByName) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 3});
  example.Head(example.MatMul("y", x, example.Variable("w", {3, 1})), "output");
  const auto error = [&](const std::string& cuts) {
    return ErrorOf(R"({"cuts": )" + cuts + "}", [&](const JsonCursor& root) {
      ReadOperatorCuts(root.At("cuts"), example.graph(), 2, example.table(), {2, 2});
    });
  };
  EXPECT_EQ(error(R"(["i", "k"])"), "no error");
  EXPECT_EQ(error(R"(["i", null])"), "no error");
  EXPECT_NE(error(R"(["k", "k"])"), "no error") << "1 is left of 3";
  EXPECT_NE(error(R"(["j", null])"), "no error") << "1 cannot be cut";
  EXPECT_NE(error(R"(["x", null])"), "no error") << "no such variable";
  EXPECT_EQ(OperatorCutsJson(example.table().row(2), {2, kReplicated}).dump(),
            R"(["k",null])");
}

TEST(PlanJson, AVariableThatCannotBeSplitIsRefused) {
  ExampleGraph example;
  example.Head(example.Window("y", example.Variable("x", {4, 8}), 2, 1), "output");
  EXPECT_NE(ErrorOf(R"({"cuts": ["d"]})",
                    [&](const JsonCursor& root) {
                      ReadOperatorCuts(root.At("cuts"), example.graph(), 1,
                                       example.table(), {2});
                    }),
            "no error");
}

}  // namespace
}  // namespace tofu
