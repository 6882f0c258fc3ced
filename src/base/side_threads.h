// Ends the computations of side threads: those that run beside the thread that hears
// Ctrl-C, which CheckInterrupt (base/interrupt.h) never asks.
#ifndef TOFU_BASE_SIDE_THREADS_H_
#define TOFU_BASE_SIDE_THREADS_H_

#include <atomic>
#include <memory>

namespace tofu {

// Some side threads, which end together.
class SideThreads {
 public:
  // Makes the calling thread one of them, for as long as it exists.
  void Join() const;
  // Ends what they compute now and later.
  void End() const { *ended_ = true; }

 private:
  std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
};

// Throws std::runtime_error if the calling thread is one of some that were ended.
void CheckSideThreads();

}  // namespace tofu

#endif  // TOFU_BASE_SIDE_THREADS_H_
