#include "base/json.h"

#include <algorithm>
#include <limits>

namespace tofu {
namespace {

using Kind = JsonValue::Kind;

constexpr size_t kMaxQuote = 40;

// Appends the path from `root` to `target` to `path`. Returns false if it is not found.
bool FindPath(const JsonValue& root, const JsonValue* target, std::string* path) {
  if (&root == target) return true;
  const size_t length = path->size();
  if (root.is(Kind::kObject)) {
    for (size_t i = 0; i < root.size; ++i) {
      if (length != 0) *path += '.';
      *path += root.members[i].key;
      if (FindPath(root.members[i].value, target, path)) return true;
      path->resize(length);
    }
  } else if (root.is(Kind::kArray)) {
    for (size_t i = 0; i < root.size; ++i) {
      *path += "[" + std::to_string(i) + "]";
      if (FindPath(root.items[i], target, path)) return true;
      path->resize(length);
    }
  }
  return false;
}

// Describes a value for a message: its type, or the value if it is short.
std::string Describe(const JsonValue& value) {
  if (value.is(Kind::kArray)) return "an array of " + std::to_string(value.size);
  if (value.is(Kind::kObject)) return "an object";
  std::string text = value.Dump();
  if (text.size() > kMaxQuote) text = text.substr(0, kMaxQuote) + "...";
  return text;
}

}  // namespace

JsonDocument ParseJson(const std::string& text, Blame blame, const std::string& name,
                       const std::string& hint) {
  JsonDocument document{blame, name, hint, {}};
  const std::string complaint = ParseJsonTree(text, &document.tree);
  TOFU_CHECK_USER(complaint.empty(), blame)
      << name << ": found " << text.size() << " bytes that are not JSON (" << complaint
      << "), expected a complete JSON document; " << hint;
  TOFU_CHECK_USER(document.tree.root.is(Kind::kObject), blame)
      << name << ": found " << Describe(document.tree.root)
      << ", expected a JSON object; " << hint;
  return document;
}

bool JsonCursor::IsNumber() const {
  return value_->is(Kind::kInt) || value_->is(Kind::kUnsigned) ||
         value_->is(Kind::kFloat);
}

bool JsonCursor::Has(std::string_view key) const {
  return value_->is(Kind::kObject) && value_->Find(key) != nullptr;
}

JsonCursor JsonCursor::At(std::string_view key) const {
  if (!value_->is(Kind::kObject)) Fail("an object with \"" + std::string(key) + "\"");
  const JsonValue* const found = value_->Find(key);
  if (found == nullptr) Fail("the key \"" + std::string(key) + "\", which is missing");
  return JsonCursor(document_, found);
}

JsonCursor JsonCursor::At(int index) const {
  if (index >= Size()) Fail("an array of at least " + std::to_string(index + 1));
  return JsonCursor(document_, value_->items + index);
}

std::vector<std::string_view> JsonCursor::Keys(const char* expected) const {
  if (!value_->is(Kind::kObject)) Fail(expected);
  std::vector<std::string_view> keys;
  for (size_t i = 0; i < value_->size; ++i) keys.push_back(value_->members[i].key);
  return keys;
}

int JsonCursor::Size() const {
  if (!value_->is(Kind::kArray)) Fail("an array");
  if (value_->size > static_cast<size_t>(std::numeric_limits<int>::max())) {
    Fail("an array of less than 2^31 elements");
  }
  return static_cast<int>(value_->size);
}

int64_t JsonCursor::Int(int64_t lowest, int64_t highest) const {
  const int64_t number = value_->is(Kind::kInt) ? value_->integer : 0;
  if (!value_->is(Kind::kInt) || number < lowest || number > highest) {
    Fail("an integer from " + std::to_string(lowest) + " to " + std::to_string(highest));
  }
  return number;
}

int JsonCursor::Index(int size) const {
  if (size == 0) Fail("nothing: there is no element to refer to");
  return static_cast<int>(Int(0, size - 1));
}

bool JsonCursor::Bool() const {
  if (!value_->is(Kind::kBool)) Fail("true or false");
  return value_->integer != 0;
}

double JsonCursor::Number() const {
  if (value_->is(Kind::kInt)) return static_cast<double>(value_->integer);
  if (value_->is(Kind::kUnsigned)) return static_cast<double>(value_->natural);
  if (!value_->is(Kind::kFloat)) Fail("a number");
  return value_->number;
}

std::string_view JsonCursor::String() const {
  if (!value_->is(Kind::kString)) Fail("a string");
  return value_->string();
}

std::vector<int> JsonCursor::Indices(int size) const {
  std::vector<int> indices(static_cast<size_t>(Size()));
  for (size_t i = 0; i < indices.size(); ++i) {
    indices[i] = At(static_cast<int>(i)).Index(size);
  }
  return indices;
}

JsonCursor JsonCursor::Tagged(const char* tag) const {
  if (Size() != 2 || !At(0).IsString() || At(0).String() != tag) {
    Fail(std::string("[\"") + tag + "\", [...]]");
  }
  return At(1);
}

std::string JsonCursor::Path() const {
  std::string path;
  const bool found = FindPath(document_->tree.root, value_, &path);
  return found && !path.empty() ? path : "the document";
}

void JsonCursor::Fail(const std::string& expected) const {
  throw UserError(document_->blame, document_->name + ": " + Path() + ": found " +
                                        Describe(*value_) + ", expected " + expected +
                                        "; " + document_->hint);
}

}  // namespace tofu
