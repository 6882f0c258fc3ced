// A vector whose first items need no allocation, for many lists of which most are short.
#ifndef TOFU_BASE_SHORT_VECTOR_H_
#define TOFU_BASE_SHORT_VECTOR_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <vector>

namespace tofu {

// Vector of numbers that stores up to `kFew` of them in place.
template <typename T, size_t kFew>
class ShortVector {
 public:
  ShortVector() = default;
  ShortVector(std::initializer_list<T> items) {
    for (const T& item : items) push_back(item);
  }
  ShortVector(size_t size, T value) : size_(size) {
    if (size > kFew) {
      many_.assign(size, value);
    } else {
      std::fill_n(few_.begin(), size, value);
    }
  }

  size_t size() const { return size_; }
  T* begin() { return size_ > kFew ? many_.data() : few_.data(); }
  T* end() { return begin() + size_; }
  const T* begin() const { return size_ > kFew ? many_.data() : few_.data(); }
  const T* end() const { return begin() + size_; }
  T& operator[](size_t i) { return begin()[i]; }
  const T& operator[](size_t i) const { return begin()[i]; }
  const T& back() const { return begin()[size_ - 1]; }

  void push_back(T item) {
    if (size_ < kFew) {
      few_[size_] = item;
    } else {
      if (size_ == kFew) many_.assign(few_.begin(), few_.end());
      many_.push_back(item);
    }
    ++size_;
  }

  friend bool operator==(const ShortVector& a, const ShortVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend bool operator!=(const ShortVector& a, const ShortVector& b) { return !(a == b); }

 private:
  size_t size_ = 0;
  std::array<T, kFew> few_ = {};
  std::vector<T> many_;  // all items, if there are more than kFew
};

}  // namespace tofu

#endif  // TOFU_BASE_SHORT_VECTOR_H_
