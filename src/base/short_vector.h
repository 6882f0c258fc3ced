// A vector whose first items need no allocation, for many mostly short lists.
#ifndef TOFU_BASE_SHORT_VECTOR_H_
#define TOFU_BASE_SHORT_VECTOR_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <type_traits>

namespace tofu {

// Vector of plain values that stores up to `kFew` of them in place. The members are those
// of std::vector, with the same meaning.
template <typename T, size_t kFew>
class ShortVector {
  static_assert(std::is_trivially_copyable_v<T>, "items are copied as bytes");

 public:
  using value_type = T;
  using size_type = size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using iterator = T*;
  using const_iterator = const T*;

  ShortVector() = default;
  explicit ShortVector(size_t size, T value = T()) { assign(size, value); }
  ShortVector(std::initializer_list<T> items) : ShortVector(items.begin(), items.end()) {}
  template <typename Iterator,
            typename = typename std::iterator_traits<Iterator>::iterator_category>
  ShortVector(Iterator first, Iterator last) {
    assign(first, last);
  }
  ShortVector(const ShortVector& other) : ShortVector(other.begin(), other.end()) {}
  ShortVector(ShortVector&& other) noexcept
      : size_(other.size_),
        capacity_(other.capacity_),
        few_(other.few_),
        many_(std::move(other.many_)) {
    other.Forget();
  }
  ShortVector& operator=(const ShortVector& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  ShortVector& operator=(ShortVector&& other) noexcept {
    if (this == &other) return *this;
    size_ = other.size_;
    capacity_ = other.capacity_;
    few_ = other.few_;
    many_ = std::move(other.many_);
    other.Forget();
    return *this;
  }
  ~ShortVector() = default;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return many_ ? many_.get() : few_.data(); }
  const T* data() const { return many_ ? many_.get() : few_.data(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  std::reverse_iterator<const T*> rbegin() const {
    return std::make_reverse_iterator(end());
  }
  std::reverse_iterator<const T*> rend() const {
    return std::make_reverse_iterator(begin());
  }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& front() { return data()[0]; }
  const T& front() const { return data()[0]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }

  void clear() { size_ = 0; }
  void reserve(size_t size) {
    if (size <= capacity_) return;
    std::unique_ptr<T[]> many(new T[size]);
    std::copy(begin(), end(), many.get());
    many_ = std::move(many);
    capacity_ = static_cast<uint32_t>(size);
  }
  void resize(size_t size, T value = T()) {
    reserve(size);
    if (size > size_) std::fill(end(), begin() + size, value);
    size_ = static_cast<uint32_t>(size);
  }
  void assign(size_t size, T value) {
    clear();
    resize(size, value);
  }
  template <typename Iterator,
            typename = typename std::iterator_traits<Iterator>::iterator_category>
  void assign(Iterator first, Iterator last) {
    clear();
    reserve(static_cast<size_t>(std::distance(first, last)));
    std::copy(first, last, begin());
    size_ = static_cast<uint32_t>(std::distance(first, last));
  }
  void push_back(T item) {
    if (size_ == capacity_) reserve(2 * static_cast<size_t>(capacity_));
    data()[size_++] = item;
  }
  T& emplace_back(T item) {
    push_back(item);
    return back();
  }
  void pop_back() { --size_; }
  T* insert(const T* position, T item) {
    const std::ptrdiff_t at = position - begin();
    push_back(item);
    std::rotate(begin() + at, end() - 1, end());
    return begin() + at;
  }
  T* erase(const T* position) {
    T* const at = begin() + (position - begin());
    std::copy(at + 1, end(), at);
    --size_;
    return at;
  }

  friend bool operator==(const ShortVector& a, const ShortVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend bool operator!=(const ShortVector& a, const ShortVector& b) { return !(a == b); }
  friend bool operator<(const ShortVector& a, const ShortVector& b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  // Leaves a vector that was moved from empty.
  void Forget() {
    size_ = 0;
    capacity_ = kFew;
  }

  uint32_t size_ = 0;
  uint32_t capacity_ = kFew;
  std::array<T, kFew> few_ = {};
  std::unique_ptr<T[]> many_;  // all items, once there were more than kFew
};

}  // namespace tofu

#endif  // TOFU_BASE_SHORT_VECTOR_H_
