// Lets the caller of a long computation end it, as by Ctrl-C.
//
// The computation asks now and then; the caller's check answers by throwing. It is
// called on the caller's thread only; on threads that the computation starts it never is.
#ifndef TOFU_BASE_INTERRUPT_H_
#define TOFU_BASE_INTERRUPT_H_

#include <functional>

namespace tofu {

// Asks `check` in this thread's computations while it exists. Scopes may be nested.
class InterruptScope {
 public:
  explicit InterruptScope(std::function<void()> check);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  std::function<void()> outer_;
};

// Asks the scope's check, if there is one, at most every tenth of a second. Cheap enough
// for a loop over nodes. Throws what the check throws.
void CheckInterrupt();

}  // namespace tofu

#endif  // TOFU_BASE_INTERRUPT_H_
