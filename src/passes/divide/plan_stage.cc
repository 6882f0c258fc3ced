#include "passes/divide/plan_stage.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "passes/divide/overlapping_workers.h"

namespace tofu {
namespace {

std::vector<int> PartsOf(const GroupBoxes& boxes) {
  return {boxes.parts.begin(), boxes.parts.end()};
}

// The digits that a holder and its readers have in common.
std::vector<int> CommonDigits(const Stage& stage, std::vector<int> digits) {
  const StepSet free =
      (StepsOf(stage.holders) | stage.holders.first_only | stage.reduces) & ~stage.alike;
  for (size_t step = 0; step < digits.size(); ++step) {
    if (HasStep(free, step)) digits[step] = kAnyDigit;
  }
  return digits;
}

// The number of the term that a worker holds.
int TermOf(const Stage& stage, const std::vector<int>& parts, int worker) {
  if (stage.reduces == 0) return 0;
  const std::vector<int> digits = WorkerDigits(worker, parts);
  int term = 0;
  for (size_t step = 0; step < parts.size(); ++step) {
    if (HasStep(stage.reduces, step)) term = term * parts[step] + digits[step];
  }
  return term;
}

int NumTerms(const Stage& stage, const std::vector<int>& parts) {
  int terms = 1;
  for (size_t step = 0; step < parts.size(); ++step) {
    if (HasStep(stage.reduces, step)) terms *= parts[step];
  }
  return terms;
}

// Fails if holders of a term overlap: a reader would get elements twice.
void CheckDisjoint(const std::vector<FetchSource>& holders, const Box& inside) {
  int64_t volume = 0;
  for (const FetchSource& each : holders) volume += Intersect(each.box, inside).Volume();
  TOFU_CHECK(volume <= inside.Volume()) << "holders of " << BoxText(inside) << " overlap";
}

// Whether the worker holds a box.
bool Holds(const Stage& stage, const std::vector<int>& digits) {
  for (size_t step = 0; step < digits.size(); ++step) {
    if (HasStep(stage.holders.first_only, step) && digits[step] != 0) return false;
  }
  return BoxAt(stage.holders, digits).Volume() > 0;
}

// Whether the box of another worker with the same common digits overlaps a region.
bool AnyOther(const Stage& stage, const GroupBoxes& boxes, int worker,
              const Box& region) {
  const std::vector<int> digits =
      CommonDigits(stage, WorkerDigits(worker, PartsOf(stage.holders)));
  const std::vector<FetchSource> found = OverlappingWorkers(boxes, region, digits, 2);
  return std::any_of(found.begin(), found.end(),
                     [&](const FetchSource& each) { return each.worker != worker; });
}

}  // namespace

FetchSpec SpecOf(const Stage& stage, int worker, const Box& region) {
  return {worker,        region, {}, NumTerms(stage, PartsOf(stage.holders)),
          stage.reducer, "0"};
}

std::vector<std::vector<FetchSource>> HoldersOf(const Stage& stage, int worker,
                                                const Box& region) {
  const std::vector<int> parts = PartsOf(stage.holders);
  std::vector<std::vector<FetchSource>> terms(
      static_cast<size_t>(NumTerms(stage, parts)));
  const Box inside = Intersect(region, stage.tensor);
  if (inside.Volume() == 0) return terms;
  const std::vector<int> digits = CommonDigits(stage, WorkerDigits(worker, parts));
  for (FetchSource& each : OverlappingWorkers(stage.holders, inside, digits)) {
    const int term = TermOf(stage, parts, each.worker);
    terms[static_cast<size_t>(term)].push_back(std::move(each));
  }
  for (const auto& holders : terms) CheckDisjoint(holders, inside);
  return terms;
}

FetchSpec PlanStage(const Stage& stage, int worker, const Box& region) {
  return PlanReduction(worker, region, stage.tensor, HoldersOf(stage, worker, region),
                       stage.reducer);
}

std::vector<SentPiece> PlanSent(const Stage& stage, int worker) {
  const std::vector<int> own = WorkerDigits(worker, PartsOf(stage.holders));
  std::vector<SentPiece> sent;
  if (!Holds(stage, own)) return sent;
  const Box held = BoxAt(stage.holders, own);
  for (const FetchSource& reader :
       OverlappingWorkers(stage.needs, held, CommonDigits(stage, own))) {
    if (reader.worker == worker) continue;
    sent.push_back({reader.worker, Relative(Intersect(reader.box, held), held.begin)});
  }
  return sent;
}

bool ReadsOwn(const Stage& stage, int worker, const Box& region) {
  const std::vector<int> own = WorkerDigits(worker, PartsOf(stage.holders));
  return Holds(stage, own) &&
         Overlap(BoxAt(stage.holders, own), Intersect(region, stage.tensor));
}

bool Receives(const Stage& stage, int worker, const Box& region) {
  const Box inside = Intersect(region, stage.tensor);
  return inside.Volume() > 0 && AnyOther(stage, stage.holders, worker, inside);
}

bool Sends(const Stage& stage, int worker) {
  const std::vector<int> own = WorkerDigits(worker, PartsOf(stage.holders));
  return Holds(stage, own) &&
         AnyOther(stage, stage.needs, worker, BoxAt(stage.holders, own));
}

std::vector<SenderPattern> PatternOf(const Stage& stage) {
  const std::vector<int> parts = PartsOf(stage.holders);
  std::vector<int> middle;
  int number = 0;
  for (int part : parts) {
    middle.push_back(part / 2);
    number = number * part + part / 2;
  }
  std::map<StepSet, int> senders;
  const Box region = BoxAt(stage.needs, middle);
  if (region.Volume() > 0) {
    for (const FetchSource& source :
         OverlappingWorkers(stage.holders, region, CommonDigits(stage, middle))) {
      if (source.worker == number) continue;
      const std::vector<int> digits = WorkerDigits(source.worker, parts);
      StepSet differing = 0;
      for (size_t step = 0; step < parts.size(); ++step) {
        if (digits[step] != middle[step]) differing |= StepSet{1} << step;
      }
      ++senders[differing];
    }
  }
  std::vector<SenderPattern> pattern;
  for (const auto& [differing, count] : senders) pattern.push_back({differing, count});
  return pattern;
}

}  // namespace tofu
