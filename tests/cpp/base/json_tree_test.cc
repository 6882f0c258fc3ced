#include "base/json_tree.h"

#include <gtest/gtest.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace tofu {
namespace {

using Json = nlohmann::json;
using Kind = JsonValue::Kind;

// The value as an nlohmann/json value.
Json Converted(const JsonValue& value) {
  switch (value.kind) {
    case Kind::kNull:
      return nullptr;
    case Kind::kBool:
      return value.integer != 0;
    case Kind::kInt:
      return value.integer;
    case Kind::kUnsigned:
      return value.natural;
    case Kind::kFloat:
      return value.number;
    case Kind::kString:
      return std::string(value.string());
    case Kind::kArray: {
      Json array = Json::array();
      for (size_t i = 0; i < value.size; ++i) array.push_back(Converted(value.items[i]));
      return array;
    }
    case Kind::kObject: {
      Json object = Json::object();
      for (size_t i = 0; i < value.size; ++i) {
        object[std::string(value.members[i].key)] = Converted(value.members[i].value);
      }
      return object;
    }
  }
  return nullptr;
}

std::string Complaint(const std::string& text) {
  JsonTree tree;
  return ParseJsonTree(text, &tree);
}

// Expects the tree to have the values that nlohmann/json reads, or both to reject the
// text.
void ExpectAlike(const std::string& text) {
  JsonTree tree;
  const std::string complaint = ParseJsonTree(text, &tree);
  if (complaint.find("\" twice") != std::string::npos) return;
  ASSERT_EQ(complaint.empty(), Json::accept(text)) << text << '\n' << complaint;
  if (!complaint.empty()) return;
  ASSERT_EQ(Converted(tree.root), Json::parse(text)) << text;
}

std::string RandomText(std::mt19937* random, int depth) {
  static const std::vector<std::string> kScalars = {"0",
                                                    "-0",
                                                    "12",
                                                    "-7",
                                                    "18446744073709551615",
                                                    "1.5e3",
                                                    "-0.25",
                                                    "1E-2",
                                                    "null",
                                                    "9223372036854775807",
                                                    "true",
                                                    "false",
                                                    "\"\"",
                                                    "\"a b\"",
                                                    "-9223372036854775809",
                                                    "[]",
                                                    "{}",
                                                    R"("\n\"")",
                                                    R"("\u00e9/")",
                                                    R"("\ud83d\ude00 \\")",
                                                    "1e999",
                                                    "01",
                                                    "\"\xc3\xa9\"",
                                                    "\"\xf0\x9f\x98\x80\"",
                                                    "\"\xed\xa0\x80\""};
  const unsigned kind = (*random)() % 4;
  if (depth == 0 || kind < 2) return kScalars[(*random)() % (kScalars.size() - 3)];
  const bool is_object = kind == 2;
  std::string text = is_object ? "{" : "[";
  for (unsigned i = 0, count = (*random)() % 4; i < count; ++i) {
    if (i > 0) text += ", ";
    if (is_object) text += '"' + std::string(1 + (*random)() % 3, 'k') + "\" :";
    text += RandomText(random, depth - 1);
  }
  return text + (is_object ? "}" : " ]");
}

TEST(JsonTree, HoldsWhatNlohmannReads) {
  constexpr unsigned kSeed = 5;
  std::cout << "seed " << kSeed << '\n';
  std::mt19937 random(kSeed);
  const std::string bytes = "{}[],:\"\\ue1.-+0truefalsn\n\x01\x80\xc3\xe2\xf0";
  for (int i = 0; i < 20000; ++i) {
    std::string text = RandomText(&random, 4);
    ExpectAlike(text);
    for (auto changes = random() % 3; changes > 0 && !text.empty(); --changes) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = bytes[random() % bytes.size()];
      } else {
        text.erase(at, 1 + random() % 2);
      }
      ExpectAlike(text);
    }
    if (HasFatalFailure()) return;
  }
}

TEST(JsonTree, SaysWhyItRefusesAText) {
  EXPECT_EQ(Complaint(R"({"a": 1, "a": 2})"), "an object has the key \"a\" twice");
  EXPECT_EQ(Complaint(std::string(100000, '[')), "more than 256 levels");
  EXPECT_EQ(Complaint(std::string(256, '[') + std::string(256, ']')), "");
  const auto says = [](const std::string& text, const std::string& what) {
    EXPECT_NE(Complaint(text).find(what), std::string::npos) << Complaint(text);
  };
  says("[1, 2", "parsing array - unexpected end of input");
  says("{1: 2}", "expected string literal");
  says("[1e999]", "number overflow");
  says("{} x", "expected end of input");
  says("\"\xff\"", "invalid string: ill-formed UTF-8 byte");
}

TEST(JsonTree, FindsMembersInAnyOrder) {
  std::string text = "{";
  for (int i = 0; i < 10000; ++i) {
    const int key = i * 7919 % 10000;
    text += (i > 0 ? ",\"" : "\"") + std::to_string(key) + "\":" + std::to_string(key);
  }
  JsonTree tree;
  ASSERT_EQ(ParseJsonTree(text + "}", &tree), "");
  for (int key = 0; key < 10000; ++key) {
    const JsonValue* found = tree.root.Find(std::to_string(key));
    ASSERT_NE(found, nullptr);
    ASSERT_EQ(found->integer, key);
  }
  EXPECT_EQ(tree.root.Find("10000"), nullptr);
}

}  // namespace
}  // namespace tofu
