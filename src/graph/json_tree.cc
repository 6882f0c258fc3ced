#include "graph/json_tree.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "graph/error.h"

namespace tofu {
namespace {

using Kind = JsonValue::Kind;

constexpr size_t kBlock = 4096;  // values that are allocated together

// Moves the elements of `stack` from `first` on to where they stay.
template <typename T>
const T* Store(std::vector<T>* stack, size_t first, std::deque<std::vector<T>>* blocks) {
  const size_t count = stack->size() - first;
  if (blocks->empty() || blocks->back().capacity() - blocks->back().size() < count) {
    blocks->emplace_back().reserve(std::max(count, kBlock));
  }
  std::vector<T>& block = blocks->back();
  const auto begin = stack->begin() + static_cast<std::ptrdiff_t>(first);
  block.insert(block.end(), begin, stack->end());
  stack->erase(begin, stack->end());
  return block.data() + block.size() - count;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Bytes of the well-formed UTF-8 sequence at `text`, or 0 (Unicode, table 3-7).
size_t Utf8Length(const unsigned char* text, size_t left) {
  const unsigned char first = text[0];
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || left < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (text[i] < 0x80 || text[i] > 0xbf) return 0;
  }
  const bool overlong =
      (first == 0xe0 && text[1] < 0xa0) || (first == 0xf0 && text[1] < 0x90);
  const bool outside =
      (first == 0xed && text[1] > 0x9f) || (first == 0xf4 && text[1] > 0x8f);
  return overlong || outside ? 0 : length;
}

char* AppendUtf8(unsigned code, char* out) {
  const auto put = [&out](unsigned byte) { *out++ = static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
  return out;
}

// Strings are decoded where they stand: no escape is shorter than what it means.
class Parser {
 public:
  explicit Parser(JsonTree* tree, size_t size)
      : tree_(tree),
        begin_(tree->text.get()),
        end_(tree->text.get() + size),
        at_(tree->text.get()) {}

  std::string Run() {
    SkipSpace();
    if (!Value(0, &tree_->root)) return complaint_;
    SkipSpace();
    if (at_ != end_) Fail("nothing after the document");
    return complaint_;
  }

 private:
  bool Fail(const char* expected) {
    if (complaint_.empty()) {
      complaint_ = "byte " + std::to_string(at_ - begin_ + 1) + ": expected " + expected;
    }
    return false;
  }

  void SkipSpace() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) {
      ++at_;
    }
  }

  bool Take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  bool Value(int depth, JsonValue* value) {
    if (depth > kMaxJsonDepth) return Fail("at most 256 levels");
    if (at_ == end_) return Fail("a value");
    switch (*at_) {
      case '{':
        return Object(depth, value);
      case '[':
        return Array(depth, value);
      case '"':
        return String(value);
      case 't':
        return Word("true", Kind::kBool, 1, value);
      case 'f':
        return Word("false", Kind::kBool, 0, value);
      case 'n':
        return Word("null", Kind::kNull, 0, value);
      default:
        return Number(value);
    }
  }

  bool Word(const char* word, Kind kind, int64_t integer, JsonValue* value) {
    const size_t length = std::strlen(word);
    if (static_cast<size_t>(end_ - at_) < length || std::memcmp(at_, word, length) != 0) {
      return Fail("a value");
    }
    at_ += length;
    value->kind = kind;
    value->integer = integer;
    return true;
  }

  bool Array(int depth, JsonValue* value) {
    const size_t first = items_.size();
    ++at_;
    SkipSpace();
    while (items_.size() == first || Take(',')) {
      SkipSpace();
      if (items_.size() == first && at_ != end_ && *at_ == ']') break;
      JsonValue item;
      if (!Value(depth + 1, &item)) return false;
      items_.push_back(item);
      SkipSpace();
    }
    if (!Take(']')) return Fail("\",\" or \"]\"");
    value->kind = Kind::kArray;
    value->size = items_.size() - first;
    value->items = Store(&items_, first, &tree_->items);
    return true;
  }

  bool Object(int depth, JsonValue* value) {
    const size_t first = members_.size();
    ++at_;
    SkipSpace();
    while (members_.size() == first || Take(',')) {
      SkipSpace();
      if (members_.size() == first && at_ != end_ && *at_ == '}') break;
      if (at_ == end_ || *at_ != '"') return Fail("a key");
      JsonValue key;
      if (!String(&key)) return false;
      SkipSpace();
      if (!Take(':')) return Fail("\":\"");
      SkipSpace();
      JsonMember member{key.string(), {}};
      if (!Value(depth + 1, &member.value)) return false;
      members_.push_back(member);
      SkipSpace();
    }
    if (!Take('}')) return Fail("\",\" or \"}\"");
    if (!SortMembers(first)) return false;
    value->kind = Kind::kObject;
    value->size = members_.size() - first;
    value->members = Store(&members_, first, &tree_->members);
    return true;
  }

  bool SortMembers(size_t first) {
    const auto begin = members_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto less = [](const JsonMember& a, const JsonMember& b) {
      return a.key < b.key;
    };
    if (!std::is_sorted(begin, members_.end(), less)) {
      std::sort(begin, members_.end(), less);
    }
    const auto equal = [](const JsonMember& a, const JsonMember& b) {
      return a.key == b.key;
    };
    if (std::adjacent_find(begin, members_.end(), equal) == members_.end()) return true;
    return Fail("every key of an object once");
  }

  bool String(JsonValue* value) {
    ++at_;
    char* const begin = at_;
    char* out = at_;
    while (at_ != end_ && *at_ != '"') {
      const auto byte = static_cast<unsigned char>(*at_);
      if (byte == '\\') {
        if (!Escape(&out)) return false;
        continue;
      }
      if (byte < ' ') return Fail("no control character in a string");
      size_t length = 1;
      if (byte >= 0x80) {
        length = Utf8Length(reinterpret_cast<unsigned char*>(at_),
                            static_cast<size_t>(end_ - at_));
        if (length == 0) return Fail("UTF-8");
      }
      for (; length > 0; --length) *out++ = *at_++;
    }
    if (!Take('"')) return Fail("the end of the string");
    value->kind = Kind::kString;
    value->text = begin;
    value->size = static_cast<size_t>(out - begin);
    return true;
  }

  bool Escape(char** out) {
    static constexpr char kEscapes[] = "\"\\/bfnrt";
    static constexpr char kMeanings[] = "\"\\/\b\f\n\r\t";
    ++at_;
    if (Take('u')) return UnicodeEscape(out);
    const char* const found =
        at_ == end_ || *at_ == '\0' ? nullptr : std::strchr(kEscapes, *at_);
    if (found == nullptr) return Fail("an escape such as \\n");
    ++at_;
    *(*out)++ = kMeanings[found - kEscapes];
    return true;
  }

  bool UnicodeEscape(char** out) {
    unsigned code = 0;
    if (!HexDigits(&code)) return false;
    if (code >= 0xdc00 && code <= 0xdfff) return Fail("a high surrogate first");
    if (code >= 0xd800 && code <= 0xdbff) {
      unsigned low = 0;
      if (!Take('\\') || !Take('u')) return Fail("a low surrogate");
      if (!HexDigits(&low)) return false;
      if (low < 0xdc00 || low > 0xdfff) return Fail("a low surrogate");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *out = AppendUtf8(code, *out);
    return true;
  }

  bool HexDigits(unsigned* code) {
    constexpr std::ptrdiff_t kDigits = 4;
    if (end_ - at_ < kDigits) return Fail("four hexadecimal digits");
    const auto [end, error] = std::from_chars(at_, at_ + kDigits, *code, 16);
    if (error != std::errc() || end != at_ + kDigits) {
      return Fail("four hexadecimal digits");
    }
    at_ += kDigits;
    return true;
  }

  bool SkipDigits() {
    const char* const begin = at_;
    while (at_ != end_ && IsDigit(*at_)) ++at_;
    return at_ != begin;
  }

  bool Number(JsonValue* value) {
    const char* const begin = at_;
    Take('-');
    if (!Take('0') && !SkipDigits()) return Fail("a value");
    bool is_integer = true;
    if (Take('.')) {
      is_integer = false;
      if (!SkipDigits()) return Fail("a digit");
    }
    if (Take('e') || Take('E')) {
      is_integer = false;
      if (!Take('+')) Take('-');
      if (!SkipDigits()) return Fail("a digit");
    }
    value->kind = Kind::kInt;
    if (is_integer && std::from_chars(begin, at_, value->integer).ec == std::errc()) {
      return true;
    }
    value->kind = Kind::kUnsigned;
    if (is_integer && std::from_chars(begin, at_, value->natural).ec == std::errc()) {
      return true;
    }
    return Float(begin, value);
  }

  // Rare, and not in every standard library.
  bool Float(const char* begin, JsonValue* value) {
    const auto parsed = nlohmann::json::parse(
        std::string(begin, static_cast<const char*>(at_)), nullptr, false);
    if (!parsed.is_number()) return Fail("a number that a double can hold");
    value->kind = Kind::kFloat;
    value->number = parsed.get<double>();
    return true;
  }

  JsonTree* const tree_;
  const char* const begin_;
  const char* const end_;
  char* at_;
  std::vector<JsonValue> items_;     // of arrays that are not complete
  std::vector<JsonMember> members_;  // of objects that are not
  std::string complaint_;
};

}  // namespace

const JsonValue* JsonValue::Find(std::string_view key) const {
  const JsonMember* const end = members + size;
  const JsonMember* const found = std::lower_bound(
      members, end, key,
      [](const JsonMember& member, auto sought) { return member.key < sought; });
  return found == end || found->key != key ? nullptr : &found->value;
}

std::string JsonValue::Dump() const {
  const auto dump = [](const nlohmann::json& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return integer != 0 ? "true" : "false";
    case Kind::kInt:
      return std::to_string(integer);
    case Kind::kUnsigned:
      return std::to_string(natural);
    case Kind::kFloat:
      return dump(number);
    case Kind::kString:
      return dump(std::string(string()));
    default:
      TOFU_CHECK(false) << "dump of a JSON value that has parts";
  }
  return "";
}

std::string ParseJsonTree(const std::string& text, JsonTree* tree) {
  tree->text = std::make_unique<char[]>(text.size());
  std::copy(text.begin(), text.end(), tree->text.get());
  return Parser(tree, text.size()).Run();
}

}  // namespace tofu
