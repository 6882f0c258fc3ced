#include "graph/json.h"

#include <limits>

namespace tofu {
namespace {

using Json = nlohmann::json;

// No document of ours nests deeper; a hostile one must not exhaust the stack.
constexpr int kMaxDepth = 16;
constexpr size_t kMaxQuote = 40;

// Appends the path from `root` to `target` to `path`; false when not found.
bool FindPath(const Json& root, const Json* target, int depth, std::string* path) {
  if (&root == target) return true;
  if (depth == kMaxDepth) return false;
  const size_t length = path->size();
  if (root.is_object()) {
    for (auto it = root.begin(); it != root.end(); ++it) {
      *path += (length == 0 ? "" : ".") + it.key();
      if (FindPath(*it, target, depth + 1, path)) return true;
      path->resize(length);
    }
  } else if (root.is_array()) {
    for (size_t i = 0; i < root.size(); ++i) {
      *path += "[" + std::to_string(i) + "]";
      if (FindPath(root[i], target, depth + 1, path)) return true;
      path->resize(length);
    }
  }
  return false;
}

// What a message says it found: the type, and the value when it is short.
std::string Describe(const Json& value) {
  if (value.is_array()) return "an array of " + std::to_string(value.size());
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMaxQuote) text = text.substr(0, kMaxQuote) + "...";
  return text;
}

}  // namespace

JsonDocument ParseJson(const std::string& text, Blame blame, const std::string& name,
                       const std::string& hint) {
  JsonDocument document{blame, name, hint, Json()};
  std::string complaint;
  try {
    document.root = Json::parse(text);
  } catch (const Json::exception& error) {
    complaint = error.what();
  }
  TOFU_CHECK_USER(complaint.empty(), blame)
      << name << ": found " << text.size() << " bytes that are not JSON (" << complaint
      << "), expected a complete JSON document; " << hint;
  TOFU_CHECK_USER(document.root.is_object(), blame)
      << name << ": found " << Describe(document.root) << ", expected a JSON object; "
      << hint;
  return document;
}

bool JsonCursor::Has(const char* key) const {
  return value_->is_object() && value_->contains(key);
}

JsonCursor JsonCursor::At(const char* key) const {
  if (!value_->is_object()) Fail(std::string("an object with \"") + key + "\"");
  const auto it = value_->find(key);
  if (it == value_->end()) Fail(std::string("the key \"") + key + "\", which is missing");
  return JsonCursor(document_, &*it);
}

JsonCursor JsonCursor::At(int index) const {
  if (index >= Size()) Fail("an array of at least " + std::to_string(index + 1));
  return JsonCursor(document_, &(*value_)[static_cast<size_t>(index)]);
}

int JsonCursor::Size() const {
  if (!value_->is_array()) Fail("an array");
  if (value_->size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    Fail("an array of less than 2^31 elements");
  }
  return static_cast<int>(value_->size());
}

int64_t JsonCursor::Int(int64_t lowest, int64_t highest) const {
  // An unsigned number above int64's range must not wrap around.
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() ||
                     value_->get<uint64_t>() <=
                         static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  const int64_t number = fits ? value_->get<int64_t>() : 0;
  if (!fits || number < lowest || number > highest) {
    Fail("an integer from " + std::to_string(lowest) + " to " + std::to_string(highest));
  }
  return number;
}

int JsonCursor::Index(int size) const {
  if (size == 0) Fail("nothing: there is no element to refer to");
  return static_cast<int>(Int(0, size - 1));
}

bool JsonCursor::Bool() const {
  if (!value_->is_boolean()) Fail("true or false");
  return value_->get<bool>();
}

double JsonCursor::Number() const {
  if (!value_->is_number()) Fail("a number");
  return value_->get<double>();
}

const std::string& JsonCursor::String() const {
  if (!value_->is_string()) Fail("a string");
  return value_->get_ref<const std::string&>();
}

std::vector<int> JsonCursor::Indices(int size) const {
  std::vector<int> indices(static_cast<size_t>(Size()));
  for (size_t i = 0; i < indices.size(); ++i) {
    indices[i] = At(static_cast<int>(i)).Index(size);
  }
  return indices;
}

JsonCursor JsonCursor::Tagged(const char* tag) const {
  if (Size() != 2 || At(0).value() != tag) {
    Fail(std::string("[\"") + tag + "\", [...]]");
  }
  return At(1);
}

std::string JsonCursor::Path() const {
  std::string path;
  const bool found = FindPath(document_->root, value_, 0, &path);
  return found && !path.empty() ? path : "the document";
}

void JsonCursor::Fail(const std::string& expected) const {
  throw UserError(document_->blame, document_->name + ": " + Path() + ": found " +
                                        Describe(*value_) + ", expected " + expected +
                                        "; " + document_->hint);
}

}  // namespace tofu
