#include "base/side_threads.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "base/interrupt.h"

namespace tofu {
namespace {

// Whether a computation of this thread ends at its next check.
bool Ends() {
  InterruptScope scope([] {});
  try {
    CheckInterrupt();
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

TEST(SideThreads, EndTogetherAndAlone) {
  SideThreads some;
  SideThreads others;
  std::thread([&] {
    some.Join();
    EXPECT_FALSE(Ends());
    others.End();
    EXPECT_FALSE(Ends()) << "others were ended";
    some.End();
    EXPECT_TRUE(Ends());
    EXPECT_TRUE(Ends()) << "and stay ended";
  }).join();
  EXPECT_FALSE(Ends()) << "the main thread is none of them";
}

TEST(SideThreads, MayJoinWhatHasEnded) {
  SideThreads some;
  some.End();
  std::thread([&] {
    some.Join();
    EXPECT_TRUE(Ends());
  }).join();
}

}  // namespace
}  // namespace tofu
