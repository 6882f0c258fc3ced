// A list of the variables or tables that a rule has yet to look at.
//
// Instead of looking at all items in every round, a rule looks at an item again only
// after a change near it, and finds the same.
#ifndef TOFU_SOLVER_WORKLIST_H_
#define TOFU_SOLVER_WORKLIST_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace tofu {

class Worklist {
 public:
  // Holds the items 0 .. size - 1.
  explicit Worklist(size_t size) : waits_(size, 1) {}

  void Add(int item) {
    if (static_cast<size_t>(item) >= waits_.size()) waits_.resize(item + 1, 0);
    waits_[item] = 1;
  }

  void AddAll() { std::fill(waits_.begin(), waits_.end(), 1); }

  // Takes the least item above `after` off the list, or returns -1 if there is none. A
  // pass in ascending order, from -1, also meets the items that it adds above its
  // position.
  int Take(int after) {
    const size_t begin = static_cast<size_t>(after) + 1;  // 0 after -1
    if (begin >= waits_.size()) return -1;
    const void* found = std::memchr(waits_.data() + begin, 1, waits_.size() - begin);
    if (found == nullptr) return -1;
    const auto item = static_cast<const char*>(found) - waits_.data();
    waits_[item] = 0;
    return static_cast<int>(item);
  }

 private:
  std::vector<char> waits_;  // [item]
};

}  // namespace tofu

#endif  // TOFU_SOLVER_WORKLIST_H_
