#include "base/interrupt.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "solver/problem/deadline.h"

namespace tofu {
namespace {

[[noreturn]] void Throw() { throw std::runtime_error("stop"); }

TEST(Interrupt, NobodyIsAskedWithoutAScope) { CheckInterrupt(); }

TEST(Interrupt, ACheckThatThrowsEndsTheComputation) {
  const InterruptScope scope(&Throw);
  EXPECT_THROW(CheckInterrupt(), std::runtime_error);
  CheckInterrupt();  // too soon after the last call to ask again
}

TEST(Interrupt, LooksAtADeadlineAskToo) {
  const InterruptScope scope(&Throw);
  EXPECT_THROW(IsPast(Deadline::max()), std::runtime_error);
}

TEST(Interrupt, TheOuterScopeIsAskedAgainAfterAnInnerOne) {
  int outer_asked = 0;
  const InterruptScope outer([&] { ++outer_asked; });
  {
    const InterruptScope inner(&Throw);
    EXPECT_THROW(CheckInterrupt(), std::runtime_error);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  CheckInterrupt();
  EXPECT_EQ(outer_asked, 1);
}

TEST(Interrupt, OtherThreadsDoNotAsk) {
  const InterruptScope scope(&Throw);
  std::thread([] { CheckInterrupt(); }).join();
}

}  // namespace
}  // namespace tofu
