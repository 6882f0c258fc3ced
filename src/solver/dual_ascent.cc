#include "solver/dual_ascent.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace tofu {
namespace {

// The scaled top stays below this.
constexpr double kMaxScaledTop = 70368744177664.0;  // 2^46
constexpr double kGone = -2251799813685248.0;       // -2^51: never the least
// Allowed relative error of sums of prices times bytes.
constexpr double kSlack = 1e-12;

// least[y] = min over x of (table[x][y] - taken[x])
void MinPlus(const double* table, const double* taken, int rows, int columns,
             double* least) {
  std::fill(least, least + columns, -kGone);
  for (int x = 0; x < rows; ++x) {
    const double off = taken[x];
    if (off == kGone) {
      table += columns;
      continue;
    }
    for (int y = 0; y < columns; ++y) {
      const double cost = table[y] - off;
      least[y] = cost < least[y] ? cost : least[y];
    }
    table += columns;
  }
}

}  // namespace

DualAscent::DualAscent(const ChoiceProblem& core, int64_t top)
    : core_(core), highest_(top) {
  // A top of 0 would have no scale, so it takes that of 1.
  const auto scaled = static_cast<double>(std::max<int64_t>(top, 1));
  while (std::ldexp(scaled, exponent_ + 1) < kMaxScaledTop) ++exponent_;
  while (std::ldexp(scaled, exponent_) >= kMaxScaledTop) --exponent_;
  const size_t count = core.domain.size();
  first_value_.push_back(0);
  for (int size : core.domain) first_value_.push_back(first_value_.back() + size);
  before_.resize(count);
  after_.resize(count);
  // The tables made so far: (cells, rows) -> the table and its transpose.
  std::map<std::pair<const std::vector<int64_t>*, int>, const double*> known;
  for (const ChoiceProblem::Pair& pair : core.pairs) {
    const int rows = core.domain[pair.a];
    const int columns = core.domain[pair.b];
    const double*& from_a = known[{&pair.cost.vector(), rows}];
    if (from_a == nullptr) from_a = AddTable(pair.cost, rows, columns);
    const double* from_b = from_a + pair.cost.size();
    after_[pair.a].push_back({pair.b, from_b, num_taken_, num_taken_ + rows});
    before_[pair.b].push_back({pair.a, from_a, num_taken_ + rows, num_taken_});
    num_taken_ += rows + columns;
  }
}

const double* DualAscent::AddTable(const SharedCells& cost, int rows, int columns) {
  const size_t size = cost.size();
  std::vector<double>& both = tables_.emplace_back(2 * size);
  for (int x = 0; x < rows; ++x) {
    for (int y = 0; y < columns; ++y) {
      const size_t cell = static_cast<size_t>(x) * columns + y;
      both[cell] = Scaled(cost[cell]);
      both[size + static_cast<size_t>(y) * rows + x] = both[cell];
    }
  }
  return both.data();
}

double DualAscent::Scaled(int64_t cost) const {
  cost = std::min(cost, highest_);
  return exponent_ < 0 ? static_cast<double>(cost >> -exponent_)
                       : std::ldexp(static_cast<double>(cost), exponent_);
}

void DualAscent::LowerTop(int64_t top, DualState* state) const {
  state->top = std::min(state->top, Scaled(top - 1) + 1);
}

DualState DualAscent::Start(int64_t top) const {
  DualState state;
  LowerTop(top, &state);
  state.node.resize(static_cast<size_t>(first_value_.back()));
  for (size_t v = 0; v < core_.domain.size(); ++v) {
    for (int x = 0; x < core_.domain[v]; ++x) {
      state.node[first_value_[v] + x] = Scaled(core_.unary[v][x]);
    }
  }
  state.taken.resize(static_cast<size_t>(num_taken_), 0);
  state.penalty.resize(state.node.size(), 0);
  state.prices.resize(core_.capacity.size(), 0);
  const auto largest = std::max_element(core_.domain.begin(), core_.domain.end());
  state.scratch.resize(core_.domain.empty() ? 0 : static_cast<size_t>(*largest));
  state.constant = Scaled(core_.constant);
  Normalize(&state);
  return state;
}

int64_t DualAscent::Bound(const DualState& state) const {
  if (state.empty) return kForbidden;
  const double bound = std::ceil(std::ldexp(state.constant, -exponent_));
  return bound < 0
             ? 0
             : static_cast<int64_t>(std::min(bound, static_cast<double>(kForbidden)));
}

void DualAscent::Remove(int v, int x, DualState* state) const {
  state->node[first_value_[v] + x] = kRemoved;
  for (const auto* ends : {&before_[v], &after_[v]}) {
    for (const End& end : *ends) state->taken[end.own_taken + x] = kGone;
  }
}

ValueMask DualAscent::Wanted(const DualState& state) const {
  ValueMask wanted(core_.domain.size());
  for (size_t v = 0; v < core_.domain.size(); ++v) {
    for (int x = 0; x < core_.domain[v]; ++x) {
      wanted[v].push_back(!IsRemoved(state, static_cast<int>(v), x));
    }
  }
  return wanted;
}

void DualAscent::Sweep(bool forward, DualState* state, std::vector<int>* rounded) const {
  const int count = core_.num_variables();
  if (rounded != nullptr) rounded->assign(static_cast<size_t>(count), 0);
  for (int i = 0; i < count && !state->empty; ++i) {
    const int v = forward ? i : count - 1 - i;
    const std::vector<End>& from = forward ? before_[v] : after_[v];
    const std::vector<End>& to = forward ? after_[v] : before_[v];
    for (const End& end : from) Collect(v, end, state);
    TakeLeast(v, state);
    if (!state->empty) RemoveDear(v, state);
    if (state->empty) return;
    if (rounded != nullptr) Round(v, from, state, rounded);
    Share(v, to, std::max(from.size(), to.size()), state);
  }
}

void DualAscent::Collect(int v, const End& end, DualState* state) const {
  const int size = core_.domain[v];
  double* least = state->scratch.data();
  MinPlus(end.table, &state->taken[end.other_taken], core_.domain[end.other], size,
          least);
  double* node = &state->node[first_value_[v]];
  double* taken = &state->taken[end.own_taken];
  for (int x = 0; x < size; ++x) {
    if (taken[x] == kGone) continue;
    node[x] += least[x] - taken[x];
    taken[x] = least[x];
  }
}

void DualAscent::TakeLeast(int v, DualState* state) const {
  double* node = &state->node[first_value_[v]];
  const int size = core_.domain[v];
  const double least = *std::min_element(node, node + size);
  if (least == kRemoved) {
    state->empty = true;
    return;
  }
  state->constant += least;
  for (int x = 0; x < size; ++x) {
    if (node[x] != kRemoved) node[x] -= least;
  }
}

void DualAscent::RemoveDear(int v, DualState* state) const {
  if (state->constant >= state->top) state->empty = true;
  const double* node = &state->node[first_value_[v]];
  for (int x = 0; x < core_.domain[v]; ++x) {
    if (node[x] != kRemoved && state->constant + node[x] >= state->top)
      Remove(v, x, state);
  }
}

void DualAscent::Normalize(DualState* state) const {
  const int count = core_.num_variables();
  for (int v = 0; v < count && !state->empty; ++v) TakeLeast(v, state);
  // Only now is c_0 a bound.
  for (int v = 0; v < count && !state->empty; ++v) RemoveDear(v, state);
}

void DualAscent::Round(int v, const std::vector<End>& before, DualState* state,
                       std::vector<int>* rounded) const {
  const int size = core_.domain[v];
  const double* node = &state->node[first_value_[v]];
  double* sum = state->scratch.data();
  std::copy(node, node + size, sum);
  for (const End& end : before) {
    const int y = (*rounded)[end.other];
    const double* row = end.table + static_cast<size_t>(y) * size;
    const double* taken = &state->taken[end.own_taken];
    for (int x = 0; x < size; ++x) {
      if (taken[x] != kGone) sum[x] += row[x] - taken[x];
    }
  }
  (*rounded)[v] = static_cast<int>(std::min_element(sum, sum + size) - sum);
}

void DualAscent::Share(int v, const std::vector<End>& after, size_t parts,
                       DualState* state) const {
  if (after.empty()) return;
  const int size = core_.domain[v];
  double* node = &state->node[first_value_[v]];
  const double part = 1.0 / static_cast<double>(parts);
  for (int x = 0; x < size; ++x) {
    if (node[x] == kRemoved) continue;
    // The shares must not exceed node[x]; the product may have been rounded up.
    double share = std::floor(node[x] * part);
    if (share * static_cast<double>(after.size()) > node[x]) share -= 1;
    for (const End& end : after) state->taken[end.own_taken + x] -= share;
    node[x] -= share * static_cast<double>(after.size());
  }
}

void DualAscent::SetPrices(std::vector<double> prices, DualState* state) const {
  double worth = 0;
  for (size_t t = 0; t < prices.size(); ++t) {
    worth += prices[t] * static_cast<double>(core_.capacity[t] + 1);
  }
  // Round to a grid on which sums are exact.
  double total = 0;
  for (double& price : prices) {
    if (worth > kMaxScaledTop) price *= kMaxScaledTop / worth;
    total += price;
  }
  int exponent = 0;
  std::frexp(total, &exponent);
  const double grid = std::ldexp(1.0, exponent - 48);
  std::vector<double> sum(prices.size() + 1, 0);
  double constant = 0;
  for (size_t t = 0; t < prices.size(); ++t) {
    prices[t] = std::floor(prices[t] / grid) * grid;
    sum[t + 1] = sum[t] + prices[t];
    constant += prices[t] * static_cast<double>(core_.capacity[t]);
  }
  constant = std::ceil(constant * (1 + kSlack));
  state->constant -= constant - state->price_constant;
  state->price_constant = constant;
  state->prices = std::move(prices);
  for (size_t v = 0; v < core_.domain.size(); ++v) {
    if (core_.segments[v].empty()) continue;
    double* node = &state->node[first_value_[v]];
    double* penalty = &state->penalty[first_value_[v]];
    for (int x = 0; x < core_.domain[v]; ++x) {
      if (node[x] == kRemoved) continue;
      double now = 0;
      for (const ChoiceProblem::Segment& segment : core_.segments[v]) {
        now += (sum[segment.end] - sum[segment.begin]) *
               static_cast<double>(segment.bytes[x]);
      }
      now = std::floor(now * (1 - kSlack));
      node[x] += now - penalty[x];
      penalty[x] = now;
    }
  }
  Normalize(state);
}

}  // namespace tofu
