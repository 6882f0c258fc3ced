#include "passes/divide/share_regions.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "base/range_max.h"
#include "graph/head_roles.h"

namespace tofu {
namespace {

// The life of an array, from the step that makes it to its last reader.
struct Life {
  int begin = 0;
  int end = 0;
};

class Sharer {
 public:
  Sharer(const WorkerProgram& program, const std::vector<bool>& in_place,
         int64_t spare_bytes)
      : steps_(program.steps),
        in_place_(in_place),
        spare_bytes_(spare_bytes),
        forward_(program.steps.size(), false),
        lives_(program.steps.size()),
        replaced_(program.steps.size(), -1) {
    MarkForward(program);
    FindLives(program);
    CountAlive();
  }

  std::vector<int> Run() {
    for (const auto& [gap, earlier, later] : Candidates()) {
      if (Pays(earlier, later)) replaced_[later] = earlier;
    }
    return std::move(replaced_);
  }

 private:
  using Candidate = std::tuple<int, int, int>;  // gap, earlier, later

  int size() const { return static_cast<int>(steps_.size()); }

  int64_t Bytes(int step, int output) const {
    return NumElements(steps_[step].shapes[output]) *
           DtypeBytes(steps_[step].dtypes[output]);
  }

  void MarkForward(const WorkerProgram& program) {
    for (const ProgramHead& head : program.heads) {
      if (head.role == kOutputRole && head.array.step >= 0) {
        forward_[head.array.step] = true;
      }
    }
    for (int step = size() - 1; step >= 0; --step) {
      if (!forward_[step]) continue;
      for (int before : steps_[step].after) forward_[before] = true;
    }
  }

  void FindLives(const WorkerProgram& program) {
    for (int step = 0; step < size(); ++step) {
      lives_[step].assign(steps_[step].shapes.size(), {step, step});
      for (ArrayId input : steps_[step].inputs) Extend(input, step);
      if (steps_[step].sends) Extend(steps_[step].held, step);
    }
    for (const ProgramHead& head : program.heads) Extend(head.array, size() - 1);
  }

  void Extend(ArrayId array, int step) {
    if (array.step < 0) return;
    int& end = lives_[array.step][array.output].end;
    end = std::max(end, step);
  }

  // Counts the bytes alive at each step. Variables always exist and do not count.
  void CountAlive() {
    std::vector<int64_t> alive(steps_.size() + 1, 0);
    for (int step = 0; step < size(); ++step) {
      const ProgramStep& s = steps_[step];
      if (s.kind == ProgramStep::Kind::kVariable || !s.takes_part) continue;
      for (size_t i = 0; i < s.shapes.size(); ++i) {
        const Life& life = lives_[step][i];
        const int64_t bytes = Bytes(step, static_cast<int>(i));
        alive[life.begin + (WritesOver(step, bytes) ? 1 : 0)] += bytes;
        alive[life.end + 1] -= bytes;
      }
    }
    for (int step = 1; step < size(); ++step) alive[step] += alive[step - 1];
    alive.pop_back();
    for (int step = 0; step < size(); ++step) {
      int64_t& limit = limits_[Half(step)];
      limit = std::max(limit, alive[step]);
    }
    alive_.emplace_back(std::move(alive));
  }

  bool WritesOver(int step, int64_t bytes) const {
    const ProgramStep& s = steps_[step];
    if (!in_place_[step] || s.shapes.size() != 1) return false;
    return std::any_of(s.inputs.begin(), s.inputs.end(), [&](ArrayId input) {
      return input.step >= 0 && steps_[input.step].kind != ProgramStep::Kind::kVariable &&
             lives_[input.step][input.output].end == step &&
             Bytes(input.step, input.output) == bytes;
    });
  }

  // The half of a training step. With bytes to spare, both halves are one.
  int Half(int step) const { return spare_bytes_ > 0 || forward_[step] ? 0 : 1; }

  // All pairs of consecutive equal fetches, the closest first.
  std::vector<Candidate> Candidates() const {
    std::vector<Candidate> candidates;
    std::map<std::pair<int, FetchKey>, int> last;
    for (int step = 0; step < size(); ++step) {
      const ProgramStep& s = steps_[step];
      if (s.kind != ProgramStep::Kind::kFetch || s.key.entry < 0 || !s.takes_part)
        continue;
      const auto [found, is_new] = last.emplace(std::make_pair(Half(step), s.key), step);
      if (is_new) continue;
      const int earlier = std::exchange(found->second, step);
      candidates.emplace_back(step - lives_[earlier][0].end, earlier, step);
    }
    std::sort(candidates.begin(), candidates.end());
    return candidates;
  }

  // Keeps the region until `later` if the limit allows; returns whether it does.
  bool Pays(int earlier, int later) {
    const int begin = lives_[earlier][0].end + 1;
    const int end = later - 1;
    const int64_t limit = limits_[Half(later)] + spare_bytes_;
    RangeMax& alive = alive_.front();
    if (begin <= end && alive.Max(begin, end) + Bytes(later, 0) > limit) return false;
    alive.Add(begin, end, Bytes(later, 0));
    return true;
  }

  const std::vector<ProgramStep>& steps_;
  const std::vector<bool>& in_place_;
  const int64_t spare_bytes_;
  std::vector<bool> forward_;             // [step]
  std::vector<std::vector<Life>> lives_;  // [step][output]
  std::vector<int> replaced_;             // [step]
  std::vector<RangeMax> alive_;           // bytes at each step; one
  std::array<int64_t, 2> limits_ = {0, 0};
};

// The steps that some head needs.
std::vector<bool> NeededSteps(const std::vector<int>& heads,
                              const std::vector<ProgramStep>& steps) {
  std::vector<bool> needed(steps.size(), false);
  for (int step : heads) needed[step] = true;
  for (size_t step = steps.size(); step-- > 0;) {
    if (!needed[step]) continue;
    for (int before : steps[step].after) needed[before] = true;
  }
  return needed;
}

}  // namespace

std::vector<int> ShareRegions(const WorkerProgram& first,
                              const std::vector<bool>& in_place, int64_t spare_bytes) {
  return Sharer(first, in_place, spare_bytes).Run();
}

void RemoveSteps(const std::vector<int>& replaced, WorkerProgram* program) {
  const auto kept = [&](int step) {
    while (replaced[step] >= 0) step = replaced[step];
    return step;
  };
  std::vector<int> heads;
  for (ProgramHead& head : program->heads) {
    head.made_by = kept(head.made_by);
    heads.push_back(head.made_by);
    if (head.array.step >= 0) head.array.step = kept(head.array.step);
  }
  for (ProgramStep& step : program->steps) {
    for (int& before : step.after) before = kept(before);
    for (ArrayId& input : step.inputs) {
      if (input.step >= 0) input.step = kept(input.step);
    }
    if (step.held.step >= 0) step.held.step = kept(step.held.step);
    if (step.source.step >= 0) step.source.step = kept(step.source.step);
  }
  const std::vector<bool> needed = NeededSteps(heads, program->steps);
  std::vector<int> numbers(program->steps.size(), -1);
  std::vector<ProgramStep> steps;
  for (size_t step = 0; step < program->steps.size(); ++step) {
    ProgramStep& moved = program->steps[step];
    const bool is_variable = moved.kind == ProgramStep::Kind::kVariable;
    const bool is_constant = moved.kind == ProgramStep::Kind::kConstant;
    if (!needed[step] && !is_variable && !is_constant) {
      program->shared_bytes += moved.received_bytes;
      continue;
    }
    numbers[step] = static_cast<int>(steps.size());
    const auto renumber = [&](ArrayId* array) {
      if (array->step >= 0) array->step = numbers[array->step];
    };
    for (int& before : moved.after) before = numbers[before];
    for (ArrayId& input : moved.inputs) renumber(&input);
    renumber(&moved.held);
    renumber(&moved.source);
    steps.push_back(std::move(moved));
  }
  for (ProgramHead& head : program->heads) {
    head.made_by = numbers[head.made_by];
    if (head.array.step >= 0) head.array.step = numbers[head.array.step];
  }
  program->steps = std::move(steps);
}

}  // namespace tofu
