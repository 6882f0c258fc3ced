// The name of an operator or of a group: one of few texts, which a graph holds many
// times.
#ifndef TOFU_BASE_NAME_H_
#define TOFU_BASE_NAME_H_

#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace tofu {

// As cheap to copy and to compare as a pointer. Texts are never freed, so the number of
// different names must be bounded. Safe to use on several threads.
class Name {
 public:
  Name() : text_(&Empty()) {}
  explicit Name(std::string_view text) : text_(&Interned(text)) {}
  Name& operator=(std::string_view text) { return *this = Name(text); }

  const std::string& text() const { return *text_; }
  operator const std::string&() const { return *text_; }  // NOLINT: a name is a text
  bool empty() const { return text_->empty(); }

  friend bool operator==(Name a, Name b) { return a.text_ == b.text_; }
  friend bool operator!=(Name a, Name b) { return a.text_ != b.text_; }
  friend bool operator==(Name a, std::string_view b) { return a.text() == b; }
  friend bool operator!=(Name a, std::string_view b) { return a.text() != b; }
  friend bool operator<(Name a, Name b) { return a.text() < b.text(); }
  friend std::ostream& operator<<(std::ostream& stream, Name name) {
    return stream << name.text();
  }

  // A pointer that is equal for equal names.
  const void* id() const { return text_; }

 private:
  static const std::string& Empty();
  static const std::string& Interned(std::string_view text);

  const std::string* text_;
};

}  // namespace tofu

template <>
struct std::hash<tofu::Name> {
  size_t operator()(tofu::Name name) const noexcept {
    return std::hash<const void*>()(name.id());
  }
};

#endif  // TOFU_BASE_NAME_H_
