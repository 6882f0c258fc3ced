// The time at which a search must stop and return its best result so far.
#ifndef TOFU_SOLVER_PROBLEM_DEADLINE_H_
#define TOFU_SOLVER_PROBLEM_DEADLINE_H_

#include <chrono>

#include "base/interrupt.h"

namespace tofu {

using Deadline = std::chrono::steady_clock::time_point;

// Also checks for Ctrl-C, because searches call this often.
inline bool IsPast(Deadline deadline) {
  CheckInterrupt();
  return deadline != Deadline::max() && std::chrono::steady_clock::now() >= deadline;
}

}  // namespace tofu

#endif  // TOFU_SOLVER_PROBLEM_DEADLINE_H_
