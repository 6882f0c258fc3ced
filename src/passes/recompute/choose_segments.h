// Chooses which segments of the forward pass run again in the backward pass, to hold
// fewer activations between the two (Chen et al., "Training deep nets with sublinear
// memory cost"; here for any graph, with the cost of each operator).
//
// The forward operators stand in a row, 0 .. n - 1. Cuts divide the row into segments;
// each one is kept or computed again.
//
//   kept:   its tensors that the backward pass or a later segment reads stay.
//   again:  two kinds of its tensors stay: those that a later segment reads, and those
//           that its fixed operators (such as random ones) wrote for the backward pass or
//           for operators that run again. From these, the other tensors that the backward
//           pass reads are computed again, when it arrives at the segment.
//           An operator runs again only for its first tensor, and otherwise counts as
//           fixed: a layer norm may write neither mean nor deviation if nothing reads its
//           output.
//
// K(s): bytes that stay of segment s; I(s): bytes that it computes again, 0 if it is
// kept; C(s): the costs of the operators that run again. A choice needs
//
//   max over s of K(0) + .. + K(s) + I(s)     and costs     C(0) + .. + C(m).
//
// With cuts c_0 .. c_m, F(j) holds the pairs (sum of K, sum of C) of all choices for the
// operators before c_j that stay within the limit, without pairs that another one beats:
//
//   F(j) = union over i < j and both kinds of segment (c_i, c_j) of F(i) + (K, C).
//
// Input:      the row, and a limit of bytes; 0: as few as possible.
// Output:     the segments to run again, at the least cost; at equal cost, those that
//             leave the fewest bytes; none if recomputation saves nothing.
// Errors:     none; a limit that no choice meets gives the fewest bytes.
// Position:   recompute.h builds the row from a training graph.
// Complexity: O(m * n) for K, I and C of all segments, O(m^2) for each limit tried by the
//             bisection that finds the fewest bytes, O(m^2 * |F|) for the choice.
//
// A row of more than kMostCuts operators is divided into kMostCuts equal pieces, and cut
// where the fewest bytes cross each piece. So each layer of at least n / kMostCuts
// operators can be a segment of its own, however many layers there are. F is thinned to
// kMostChoices; its pair of fewest bytes stays. The choice is exact for shorter rows and
// smaller F.
#ifndef TOFU_PASSES_RECOMPUTE_CHOOSE_SEGMENTS_H_
#define TOFU_PASSES_RECOMPUTE_CHOOSE_SEGMENTS_H_

#include <cstdint>
#include <vector>

namespace tofu {

struct ForwardRow {
  struct Tensor {
    int writer = 0;       // operator
    int last_reader = 0;  // the last operator of the row that reads it, or `writer`
    int64_t bytes = 0;
    bool saved = false;     // the backward pass reads it
    bool resident = false;  // alive all the time, under every choice
  };
  struct Operator {
    int64_t cost = 0;
    bool fixed = false;       // must not run again
    std::vector<int> reads;   // tensors
    std::vector<int> writes;  // tensors
  };

  std::vector<Operator> operators;
  std::vector<Tensor> tensors;
};

// Operators begin .. end - 1.
struct Segment {
  int begin = 0;
  int end = 0;
};

// The tensors that a segment keeps, and the operators that it runs again.
struct SegmentNeeds {
  int64_t kept_bytes = 0;
  int64_t again_bytes = 0;
  int64_t cost = 0;
  std::vector<int> again;  // operators, in order
};

struct SegmentChoice {
  std::vector<Segment> segments;  // that run again, in order
  int64_t bytes = 0;              // bytes needed at the peak
  int64_t kept_bytes = 0;
  int64_t cost = 0;
};

constexpr int kMostCuts = 1024;
constexpr int kMostChoices = 64;

SegmentNeeds NeedsOf(const ForwardRow& row, Segment segment, bool runs_again);

// The bytes of all tensors that the backward pass reads.
int64_t SavedBytes(const ForwardRow& row);

SegmentChoice ChooseSegments(const ForwardRow& row, int64_t limit_bytes);

}  // namespace tofu

#endif  // TOFU_PASSES_RECOMPUTE_CHOOSE_SEGMENTS_H_
