#include "solver/raise_bound.h"

#include <algorithm>
#include <utility>

namespace tofu {
namespace {

constexpr double kDeflection = 0.15;  // a
constexpr int kPatience = 15;
constexpr double kShrink = 0.7;
constexpr double kTargetAbove = 0.05;  // relative to the bound
constexpr int kWindow = 24;            // rounds
constexpr double kLeastGain = 1e-6;    // per window, relative to the bound
constexpr double kLeastStep = 1e-4;

class Raiser {
 public:
  Raiser(const ChoiceProblem& core, const DualAscent& ascent, const RaiseOptions& options,
         DualState* state)
      : core_(core),
        ascent_(ascent),
        options_(options),
        state_(*state),
        best_(*state),
        step_(options.first_step),
        direction_(core.capacity.size(), 0) {}

  void Run(const OnChoice& on_choice, std::vector<int>* counts) {
    std::vector<int> choice;
    double window_start = state_.constant;
    for (int round = 0; round < options_.rounds; ++round) {
      ascent_.Sweep(true, &state_, &choice);
      if (!state_.empty) {
        ascent_.LowerTop(on_choice(choice), &state_);
        ascent_.Sweep(false, &state_, nullptr);
      }
      if (state_.empty) break;
      Remember();
      if (counts != nullptr) {
        for (size_t v = 0; v < choice.size(); ++v) {
          ++(*counts)[ascent_.first_value(static_cast<int>(v)) + choice[v]];
        }
      }
      if (round % kWindow == kWindow - 1) {
        const double gain = best_.constant - std::exchange(window_start, best_.constant);
        const bool is_little = gain <= kLeastGain * std::abs(best_.constant);
        if (is_little && (core_.capacity.empty() || step_ < kLeastStep)) break;
      }
      if (IsPast(options_.deadline)) break;
      ChangePrices(choice, round == 0);
      if (state_.empty) break;
    }
    if (!state_.empty) TakeUpBest();
  }

 private:
  void Remember() {
    if (state_.constant > best_.constant) {
      best_ = state_;
      fruitless_ = 0;
      return;
    }
    if (core_.capacity.empty() || ++fruitless_ < kPatience) return;
    step_ *= kShrink;
    fruitless_ = 0;
    TakeUpBest();
  }

  // Returns to the best state, without the values removed since.
  void TakeUpBest() {
    best_.top = std::min(best_.top, state_.top);
    DualState next = best_;
    for (int v = 0; v < core_.num_variables(); ++v) {
      for (int x = 0; x < core_.domain[v]; ++x) {
        if (ascent_.IsRemoved(state_, v, x)) ascent_.Remove(v, x, &next);
      }
    }
    state_ = std::move(next);
  }

  void ChangePrices(const std::vector<int>& choice, bool is_first) {
    if (core_.capacity.empty()) return;
    const std::vector<int64_t> load = core_.Load(choice);
    const double part = is_first ? 1 : kDeflection;
    double norm = 0;
    for (size_t t = 0; t < load.size(); ++t) {
      const double excess = static_cast<double>(load[t] - core_.capacity[t]);
      direction_[t] = part * excess + (1 - part) * direction_[t];
      if (best_.prices[t] > 0 || direction_[t] > 0) norm += direction_[t] * direction_[t];
    }
    if (norm == 0) return;
    const double target = std::min(
        state_.top, best_.constant + kTargetAbove * std::abs(best_.constant) + 1);
    const double step = step_ * (target - best_.constant) / norm;
    std::vector<double> prices(load.size());
    for (size_t t = 0; t < prices.size(); ++t) {
      prices[t] = std::max(0.0, best_.prices[t] + step * direction_[t]);
    }
    ascent_.SetPrices(std::move(prices), &state_);
  }

  const ChoiceProblem& core_;
  const DualAscent& ascent_;
  const RaiseOptions& options_;
  DualState& state_;
  DualState best_;
  double step_;
  std::vector<double> direction_;
  int fruitless_ = 0;
};

}  // namespace

void RaiseBound(const ChoiceProblem& core, const DualAscent& ascent,
                const RaiseOptions& options, const OnChoice& on_choice, DualState* state,
                std::vector<int>* counts) {
  Raiser(core, ascent, options, state).Run(on_choice, counts);
}

}  // namespace tofu
