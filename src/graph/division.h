// Divides ranges as the steps of a plan do: into parts with shares (docs/design/0021).
// All cuts follow this rule.
//
// A step cuts a range into contiguous pieces. Without shares their sizes are equal, or
// differ by one element, and the first ones are larger. With shares each piece is as near
// to its part's share as whole elements allow, and has enough elements for all later
// steps to cut it if equal pieces have. So every cut that equal pieces allow, shares
// allow, too. With a multiple, bounds lie on multiples of it, counted from the range's
// begin, as long as no piece grows by more than 2% and each keeps its least size.
//
// Complexity: O(1) without shares and multiple; else O(parts).
#ifndef TOFU_GRAPH_DIVISION_H_
#define TOFU_GRAPH_DIVISION_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tofu {

// The half-open range of an index variable, or of one dimension.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Piece `digit` of `parts` contiguous pieces of a range. If the range does not divide,
// the first pieces have one element more than the others. So pieces of pieces have the
// sizes of pieces cut at once, worker 0 always holds a largest one, and the last worker a
// smallest one.
Range Piece(const Range& range, int parts, int digit);

constexpr int64_t kMostShares = int64_t{1} << 20;  // the sum of a step's shares

// The reasons why pieces are not equal: shares, and a multiple.
struct TileShares {
  // [step][part]: the parts' shares, in relation to each other; a step without numbers
  // divides equally. Empty: all steps do.
  std::vector<std::vector<int>> of_steps;
  int multiple = 1;  // bounds lie on multiples of so many elements if that costs little

  bool IsPlain() const { return of_steps.empty() && multiple == 1; }
  // The shares of a step's parts; empty: they are equal.
  const std::vector<int>& of(size_t step) const;
  bool operator==(const TileShares& other) const {
    return of_steps == other.of_steps && multiple == other.multiple;
  }
};

// Leaves out the shares of steps whose shares are equal.
TileShares Normal(TileShares shares);

// A view of the parts and shares of a plan, which must outlive it.
class Division {
 public:
  Division(const std::vector<int>& parts)  // NOLINT: equal parts
      : Division(parts.data(), parts.size(), nullptr) {}
  Division(std::initializer_list<int> parts)  // NOLINT: equal parts, for one call
      : Division(parts.begin(), parts.size(), nullptr) {}
  Division(const std::vector<int>& parts, const TileShares& shares)
      : Division(parts.data(), parts.size(), shares.IsPlain() ? nullptr : &shares) {}

  size_t size() const { return steps_; }
  int operator[](size_t step) const { return parts_[step]; }

  // The piece of a range that a step leaves workers with this digit.
  Range Piece(const Range& range, size_t step, int digit) const;

 private:
  Division(const int* parts, size_t steps, const TileShares* shares)
      : parts_(parts), steps_(steps), shares_(shares) {}

  std::vector<int64_t> Bounds(int64_t size, size_t step) const;

  const int* parts_;
  size_t steps_;
  const TileShares* shares_;  // null: equal parts
};

}  // namespace tofu

#endif  // TOFU_GRAPH_DIVISION_H_
