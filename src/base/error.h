// Errors split by blame: bad input from a user, and faults of tofu.
//
//   TOFU_CHECK_USER(dim < rank, Blame::kPlan)
//       << "node " << name << ": cut " << dim << ", expected below " << rank;
//   TOFU_CHECK(!nodes.empty()) << "the graph was verified before this pass";
#ifndef TOFU_BASE_ERROR_H_
#define TOFU_BASE_ERROR_H_

#include <sstream>
#include <stdexcept>
#include <string>

namespace tofu {

// The user's document at fault.
enum class Blame { kGraph, kTable, kPlan };

// Bad input. The text says where the error is, what was found and expected, and what to
// do.
class UserError : public std::runtime_error {
 public:
  UserError(Blame blame, const std::string& what)
      : std::runtime_error(what), blame_(blame) {}
  Blame blame() const { return blame_; }

 private:
  Blame blame_;
};

// A broken invariant of this library.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace internal {

class Message {
 public:
  template <typename T>
  Message& operator<<(const T& value) {
    text_ << value;
    return *this;
  }
  std::string str() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

// operator& binds less tightly than <<, so the whole message is built first.
struct UserRaiser {
  Blame blame;
  [[noreturn]] void operator&(const Message& message) const {
    throw UserError(blame, message.str());
  }
};

struct InternalRaiser {
  const char* file;
  int line;
  [[noreturn]] void operator&(const Message& message) const {
    throw InternalError(std::string(file) + ":" + std::to_string(line) + ": " +
                        message.str());
  }
};

}  // namespace internal
}  // namespace tofu

#define TOFU_CHECK_USER(condition, blame) \
  if (condition) {                        \
  } else                                  \
    ::tofu::internal::UserRaiser{blame} & ::tofu::internal::Message()

#define TOFU_CHECK(condition) \
  if (condition) {            \
  } else                      \
    ::tofu::internal::InternalRaiser{__FILE__, __LINE__} & ::tofu::internal::Message()

#endif  // TOFU_BASE_ERROR_H_
