#include "base/json.h"

#include <gtest/gtest.h>

#include <functional>

namespace tofu {
namespace {

JsonDocument Parsed(const std::string& text) {
  return ParseJson(text, Blame::kPlan, "plan", "make it again");
}

// The error of `read` for the root of a document.
std::string ErrorOf(const std::string& text,
                    const std::function<void(const JsonCursor&)>& read) {
  try {
    const JsonDocument document = Parsed(text);
    read(JsonCursor(document));
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kPlan);
    return error.what();
  }
  return "no error";
}

TEST(Json, ReadsEveryKindOfValue) {
  const JsonDocument document =
      Parsed(R"({"int": -3, "yes": true, "half": 0.5, "text": "a", "all": [2, 0]})");
  const JsonCursor root(document);
  EXPECT_EQ(root.At("int").Int(-3, -3), -3);
  EXPECT_TRUE(root.At("yes").Bool());
  EXPECT_EQ(root.At("half").Number(), 0.5);
  EXPECT_EQ(root.At("int").Number(), -3);
  EXPECT_EQ(root.At("text").String(), "a");
  EXPECT_EQ(root.At("all").Indices(3), (std::vector<int>{2, 0}));
  EXPECT_TRUE(root.Has("int"));
  EXPECT_FALSE(root.Has("integer"));
}

TEST(Json, BoundsOfNumbersAreInclusive) {
  const auto between = [](int64_t lowest, int64_t highest) {
    return ErrorOf(R"({"n": 5})",
                   [=](const JsonCursor& root) { root.At("n").Int(lowest, highest); });
  };
  EXPECT_EQ(between(5, 5), "no error");
  EXPECT_NE(between(6, 9), "no error");
  EXPECT_NE(between(0, 4), "no error");
}

TEST(Json, AnIndexIsBelowItsSize) {
  const auto below = [](int size) {
    return ErrorOf(R"({"n": 2})",
                   [=](const JsonCursor& root) { root.At("n").Index(size); });
  };
  EXPECT_EQ(below(3), "no error");
  EXPECT_NE(below(2), "no error");
}

TEST(Json, AComplaintHasThePlaceAndTheHint) {
  const std::string text =
      ErrorOf(R"({"steps": [{"cut": "x"}]})",
              [](const JsonCursor& root) { root.At("steps").At(0).At("cut").Int(0, 9); });
  for (const char* part : {"plan", "steps[0].cut", "\"x\"", "make it again"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  }
}

TEST(Json, AMissingKeyAndAnotherKindAreComplaints) {
  EXPECT_NE(ErrorOf("{}", [](const JsonCursor& root) { root.At("format"); }), "no error");
  EXPECT_NE(ErrorOf("{}", [](const JsonCursor& root) { root.Size(); }), "no error");
  EXPECT_NE(ErrorOf(R"({"n": 1})", [](const JsonCursor& root) { root.At("n").String(); }),
            "no error");
  EXPECT_NE(ErrorOf(R"({"n": 1})", [](const JsonCursor& root) { root.At("n").Bool(); }),
            "no error");
  EXPECT_NE(ErrorOf("[]", [](const JsonCursor&) {}), "no error") << "no object";
}

TEST(Json, AGraphAttributeHasATag) {
  const std::string text = R"({"shape": ["list_shape", [[2]]]})";
  EXPECT_EQ(ErrorOf(text,
                    [](const JsonCursor& root) {
                      EXPECT_EQ(root.At("shape").Tagged("list_shape").Size(), 1);
                    }),
            "no error");
  EXPECT_NE(
      ErrorOf(text, [](const JsonCursor& root) { root.At("shape").Tagged("list_int"); }),
      "no error");
}

}  // namespace
}  // namespace tofu
