#include "base/interrupt.h"

#include <chrono>
#include <utility>

#include "base/side_threads.h"

namespace tofu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Clock::rep kBetweenChecks =
    Clock::duration(std::chrono::milliseconds(100)).count();

thread_local std::function<void()> check_interrupt;
thread_local Clock::rep next_check = 0;  // ticks since the clock's epoch

Clock::rep Now() { return Clock::now().time_since_epoch().count(); }

}  // namespace

InterruptScope::InterruptScope(std::function<void()> check)
    : outer_(std::exchange(check_interrupt, std::move(check))) {
  next_check = Now();
}

InterruptScope::~InterruptScope() { check_interrupt = std::move(outer_); }

void CheckInterrupt() {
  if (!check_interrupt) return;
  const Clock::rep now = Now();
  if (now < next_check) return;
  next_check = now + kBetweenChecks;
  CheckSideThreads();
  check_interrupt();
}

}  // namespace tofu
