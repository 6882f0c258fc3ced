// Lets the caller of a long computation end it, as by Ctrl-C.
//
// The computation asks from time to time; the caller's check answers by throwing. The
// check is called on the caller's thread only, never on threads that the computation
// starts.
#ifndef TOFU_BASE_INTERRUPT_H_
#define TOFU_BASE_INTERRUPT_H_

#include <functional>

namespace tofu {

// While it exists, computations of this thread ask `check`. Scopes may be nested.
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
// for a loop over nodes. Passes on the check's exception.
void CheckInterrupt();

}  // namespace tofu

#endif  // TOFU_BASE_INTERRUPT_H_
