// Disjoint sets of 0 .. n-1. The representative of a set is its least member, so
// results do not depend on the order of merging.
#ifndef TOFU_BASE_UNION_FIND_H_
#define TOFU_BASE_UNION_FIND_H_

#include <algorithm>
#include <numeric>
#include <vector>

namespace tofu {

class UnionFind {
 public:
  explicit UnionFind(int size) : parent_(static_cast<size_t>(size)) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }

  int Find(int x) {
    while (parent_[x] != x) x = parent_[x] = parent_[parent_[x]];
    return x;
  }

  // Returns false if both were in one set already.
  bool Merge(int a, int b) {
    a = Find(a);
    b = Find(b);
    parent_[std::max(a, b)] = std::min(a, b);
    return a != b;
  }

 private:
  std::vector<int> parent_;
};

}  // namespace tofu

#endif  // TOFU_BASE_UNION_FIND_H_
