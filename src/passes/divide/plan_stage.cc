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
  const StepSet free = StepsOf(stage.holders) | stage.holders.first_only | stage.reduces;
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

void CheckCovers(const FetchSpec& spec, const Box& inside) {
  std::vector<int64_t> volumes(spec.num_terms, 0);
  for (const FetchPiece& piece : spec.pieces) {
    if (piece.source != kFill) volumes[piece.term] += piece.to.Volume();
  }
  for (int64_t volume : volumes) {
    if (volume < inside.Volume()) throw FetchGap(inside);
    TOFU_CHECK(volume == inside.Volume())
        << "holders of " << BoxText(inside) << " overlap";
  }
}

}  // namespace

FetchSpec PlanStage(const Stage& stage, int worker, const Box& region,
                    const Box& tensor) {
  FetchSpec spec;
  spec.worker = worker;
  spec.region = region;
  spec.reduce = stage.reducer;
  const std::vector<int> parts = PartsOf(stage.holders);
  spec.num_terms = NumTerms(stage, parts);
  const Box inside = Intersect(region, tensor);
  if (region.Volume() == 0) return spec;
  if (!(inside == region)) {
    spec.pieces.push_back({kFill, {}, WholeBox(region.Extents()), 0});
  }
  if (inside.Volume() == 0) return spec;
  const std::vector<int> digits = CommonDigits(stage, WorkerDigits(worker, parts));
  for (const FetchSource& source : OverlappingWorkers(stage.holders, inside, digits)) {
    const Box common = Intersect(source.box, inside);
    spec.pieces.push_back({source.worker, Relative(common, source.box.begin),
                           Relative(common, region.begin),
                           TermOf(stage, parts, source.worker)});
  }
  CheckCovers(spec, inside);
  std::stable_sort(spec.pieces.begin(), spec.pieces.end(),
                   [](const FetchPiece& a, const FetchPiece& b) {
                     const int first = a.source == kFill ? 0 : 1;
                     const int second = b.source == kFill ? 0 : 1;
                     return std::tie(first, a.term, a.to.begin) <
                            std::tie(second, b.term, b.to.begin);
                   });
  return spec;
}

std::vector<SentPiece> PlanSent(const Stage& stage, int worker) {
  const std::vector<int> own = WorkerDigits(worker, PartsOf(stage.holders));
  const Box held = BoxAt(stage.holders, own);
  std::vector<SentPiece> sent;
  if (held.Volume() == 0) return sent;
  for (const FetchSource& reader :
       OverlappingWorkers(stage.needs, held, CommonDigits(stage, own))) {
    if (reader.worker == worker) continue;
    sent.push_back({reader.worker, Relative(Intersect(reader.box, held), held.begin)});
  }
  return sent;
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
