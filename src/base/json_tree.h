// Reads a JSON text into a tree of values stored contiguously. The parser is that of
// nlohmann/json, whose own tree would allocate once per value, too slow for graphs of
// thousands of nodes.
//
// Input:      UTF-8 text, as that parser accepts it, except objects with duplicate
//             keys and text that nests deeper than kMaxJsonDepth.
// Output:     a tree that owns its strings; members of objects are sorted by key.
// Complexity: O(length), and O(m log m) for m unsorted members of an object.
#ifndef TOFU_BASE_JSON_TREE_H_
#define TOFU_BASE_JSON_TREE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace tofu {

constexpr size_t kMaxJsonDepth = 256;

struct JsonMember;

struct JsonValue {
  enum class Kind { kNull, kBool, kInt, kUnsigned, kFloat, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  size_t size = 0;  // of a string, array or object
  union {
    int64_t integer = 0;  // kInt; kBool: 0 or 1
    uint64_t natural;     // kUnsigned: only values above int64's range
    double number;        // kFloat
    const char* text;     // kString
    const JsonValue* items;
    const JsonMember* members;
  };

  bool is(Kind of) const { return kind == of; }
  std::string_view string() const { return {text, size}; }
  // The member with this key, or null.
  const JsonValue* Find(std::string_view key) const;
  // The JSON text of a value that is neither an array nor an object.
  std::string Dump() const;
};

struct JsonMember {
  std::string_view key;
  JsonValue value;
};

// Movable, not copyable: values point into it.
struct JsonTree {
  JsonValue root;
  std::deque<std::string> text;
  std::deque<std::vector<JsonValue>> items;
  std::deque<std::vector<JsonMember>> members;
};

// Returns an empty string, or the reason why `text` is rejected.
std::string ParseJsonTree(const std::string& text, JsonTree* tree);

}  // namespace tofu

#endif  // TOFU_BASE_JSON_TREE_H_
