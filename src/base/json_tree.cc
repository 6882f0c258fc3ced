#include "base/json_tree.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tofu {
namespace {

using Kind = JsonValue::Kind;

constexpr size_t kBlock = 4096;         // values allocated together
constexpr size_t kTextBlock = 1 << 16;  // bytes of strings allocated together

// Moves the elements of `stack` from index `first` on to their final place.
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

// Adds the values that the parser reads to the tree. Parts of incomplete arrays and
// objects wait on stacks.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(JsonTree* tree) : tree_(tree) {}

  const std::string& complaint() const { return complaint_; }

  bool null() override { return Put({}); }
  bool boolean(bool value) override {
    JsonValue put;
    put.kind = Kind::kBool;
    put.integer = value ? 1 : 0;
    return Put(put);
  }
  bool number_integer(int64_t value) override {
    JsonValue put;
    put.kind = Kind::kInt;
    put.integer = value;
    return Put(put);
  }
  bool number_unsigned(uint64_t value) override {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return number_integer(static_cast<int64_t>(value));
    }
    JsonValue put;
    put.kind = Kind::kUnsigned;
    put.natural = value;
    return Put(put);
  }
  bool number_float(double value, const std::string& /*text*/) override {
    JsonValue put;
    put.kind = Kind::kFloat;
    put.number = value;
    return Put(put);
  }
  bool string(std::string& value) override {
    const std::string_view kept = Keep(value);
    JsonValue put;
    put.kind = Kind::kString;
    put.text = kept.data();
    put.size = kept.size();
    return Put(put);
  }
  // JSON text has no binary data.
  bool binary(binary_t& /*value*/) override { return Fail("binary data"); }

  bool start_object(size_t /*size*/) override {
    return Open({/*is_object=*/true, members_.size()});
  }
  bool key(std::string& value) override {
    members_.push_back({Keep(value), {}});
    return true;
  }
  bool end_object() override {
    const size_t first = open_.back().first;
    open_.pop_back();
    if (!SortMembers(first)) return false;
    JsonValue put;
    put.kind = Kind::kObject;
    put.size = members_.size() - first;
    put.members = Store(&members_, first, &tree_->members);
    return Put(put);
  }
  bool start_array(size_t /*size*/) override {
    return Open({/*is_object=*/false, items_.size()});
  }
  bool end_array() override {
    const size_t first = open_.back().first;
    open_.pop_back();
    JsonValue put;
    put.kind = Kind::kArray;
    put.size = items_.size() - first;
    put.items = Store(&items_, first, &tree_->items);
    return Put(put);
  }

  bool parse_error(size_t /*position*/, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& error) override {
    return Fail(error.what());
  }

 private:
  struct Part {
    bool is_object;
    size_t first;  // the first of its members or items on their stack
  };

  bool Fail(const std::string& complaint) {
    complaint_ = complaint;
    return false;
  }

  bool Open(const Part& part) {
    if (open_.size() == kMaxJsonDepth) {
      return Fail("more than " + std::to_string(kMaxJsonDepth) + " levels");
    }
    open_.push_back(part);
    return true;
  }

  bool Put(const JsonValue& value) {
    if (open_.empty()) {
      tree_->root = value;
    } else if (open_.back().is_object) {
      members_.back().value = value;
    } else {
      items_.push_back(value);
    }
    return true;
  }

  std::string_view Keep(const std::string& text) {
    std::deque<std::string>& blocks = tree_->text;
    if (blocks.empty() || blocks.back().capacity() - blocks.back().size() < text.size()) {
      blocks.emplace_back().reserve(std::max(text.size(), kTextBlock));
    }
    std::string& block = blocks.back();
    block += text;
    return {block.data() + block.size() - text.size(), text.size()};
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
    const auto twice = std::adjacent_find(begin, members_.end(), equal);
    if (twice == members_.end()) return true;
    return Fail("an object has the key \"" + std::string(twice->key) + "\" twice");
  }

  JsonTree* const tree_;
  std::vector<Part> open_;           // arrays and objects, from the outermost on
  std::vector<JsonValue> items_;     // of arrays that are not complete
  std::vector<JsonMember> members_;  // of objects that are not complete
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
  Builder builder(tree);
  nlohmann::json::sax_parse(text, &builder);
  return builder.complaint();
}

}  // namespace tofu
