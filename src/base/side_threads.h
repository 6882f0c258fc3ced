// Ends the computations of side threads: threads beside the one that hears Ctrl-C, for
// which CheckInterrupt (base/interrupt.h) asks no check.
#ifndef TOFU_BASE_SIDE_THREADS_H_
#define TOFU_BASE_SIDE_THREADS_H_

#include <atomic>
#include <memory>

namespace tofu {

// A set of side threads that end together.
class SideThreads {
 public:
  // Adds the calling thread, for as long as it exists.
  void Join() const;
  // Ends the threads' present and later computations.
  void End() const { *ended_ = true; }

 private:
  std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
};

// Throws std::runtime_error if the calling thread belongs to a set that was ended.
void CheckSideThreads();

}  // namespace tofu

#endif  // TOFU_BASE_SIDE_THREADS_H_
