#include "base/interrupt.h"

#include <chrono>
#include <utility>

namespace tofu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBetweenChecks = std::chrono::milliseconds(100);

thread_local std::function<void()> check_interrupt;
thread_local Clock::time_point next_check;

}  // namespace

InterruptScope::InterruptScope(std::function<void()> check)
    : outer_(std::exchange(check_interrupt, std::move(check))) {
  next_check = Clock::now();
}

InterruptScope::~InterruptScope() { check_interrupt = std::move(outer_); }

void CheckInterrupt() {
  if (!check_interrupt) return;
  const Clock::time_point now = Clock::now();
  if (now < next_check) return;
  next_check = now + kBetweenChecks;
  check_interrupt();
}

}  // namespace tofu
