#include "base/side_threads.h"

#include <stdexcept>

namespace tofu {
namespace {

thread_local std::shared_ptr<std::atomic<bool>> ended;

}  // namespace

void SideThreads::Join() const { ended = ended_; }

void CheckSideThreads() {
  if (ended && *ended) throw std::runtime_error("the computation was ended");
}

}  // namespace tofu
