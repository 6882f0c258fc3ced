// Reads JSON documents that a person or another program wrote, with checks of types.
// Every error names the document, the position in it, what was found and what was
// expected.
#ifndef TOFU_BASE_JSON_H_
#define TOFU_BASE_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json_tree.h"

namespace tofu {

// A JSON document with the words that its error messages use.
struct JsonDocument {
  Blame blame = Blame::kGraph;
  std::string name;  // "graph", "strategy table", "plan"
  std::string hint;  // what to do if it is damaged
  JsonTree tree;
};

// Parses `text`, whose root must be an object, else UserError.
JsonDocument ParseJson(const std::string& text, Blame blame, const std::string& name,
                       const std::string& hint);

// A value inside a document, which must outlive it.
class JsonCursor {
 public:
  explicit JsonCursor(const JsonDocument& document)
      : JsonCursor(&document, &document.tree.root) {}

  const JsonValue& value() const { return *value_; }
  bool IsNull() const { return value_->is(JsonValue::Kind::kNull); }
  bool IsString() const { return value_->is(JsonValue::Kind::kString); }
  bool IsNumber() const;
  bool Has(std::string_view key) const;

  JsonCursor At(std::string_view key) const;  // of an object
  JsonCursor At(int index) const;             // of an array

  // The keys of an object, sorted. Any other value is an error, which names `expected`.
  std::vector<std::string_view> Keys(const char* expected) const;
  // The number of elements of an array.
  int Size() const;
  int64_t Int(int64_t lowest, int64_t highest) const;
  int Index(int size) const;  // 0 <= value < size
  bool Bool() const;
  double Number() const;
  std::string_view String() const;           // valid as long as the document
  std::vector<int> Indices(int size) const;  // an array of Index(size)
  // The value of a graph attribute, which NNVM writes as ["list_int", value].
  JsonCursor Tagged(const char* tag) const;

  // "nodes[3].inputs[0]"
  std::string Path() const;

  // Raises UserError: the value is not as `expected`.
  [[noreturn]] void Fail(const std::string& expected) const;

 private:
  JsonCursor(const JsonDocument* document, const JsonValue* value)
      : document_(document), value_(value) {}

  const JsonDocument* document_;
  const JsonValue* value_;
};

}  // namespace tofu

#endif  // TOFU_BASE_JSON_H_
