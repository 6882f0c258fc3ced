#include "passes/divide/outline_exchange.h"

#include <map>
#include <set>
#include <tuple>

#include "graph/box.h"
#include "passes/divide/plan_stage.h"

namespace tofu {
namespace {

constexpr int kAlikeTerms = 3;  // a result, its terms before and now

using Terms = std::vector<std::vector<FetchSource>>;

// The holders of each term. PiecesOf fails if they leave something out.
Terms CheckedHolders(const ProgramStep& fetch) {
  const Box inside = Intersect(fetch.spec.region, fetch.stage->tensor);
  Terms terms = HoldersOf(*fetch.stage, fetch.spec.worker, fetch.spec.region);
  for (const std::vector<FetchSource>& holders : terms) {
    int64_t volume = 0;
    for (const FetchSource& each : holders)
      volume += Intersect(each.box, inside).Volume();
    if (volume < inside.Volume()) PiecesOf(fetch);
  }
  return terms;
}

// Whether a term of a region is one piece.
bool IsWhole(const std::vector<FetchSource>& holders, const Box& region) {
  return holders.size() == 1 && Contains(holders[0].box, region);
}

class Outliner {
 public:
  Outliner(const WorkerProgram& program, const std::vector<int>& fetches)
      : program_(program), fetches_(fetches) {}

  ExchangeOutline Run(const std::vector<int>& forms) {
    for (size_t i = 0; i < fetches_.size(); ++i) {
      const ProgramStep& step = StepOf(i);
      if (step.takes_part && step.receives) AddReceived(step);
      if (step.sends) AddSent(i, forms[i]);
    }
    CountReceived();
    CountSent();
    return std::move(outline_);
  }

 private:
  // An array's step and output, the form, and the box.
  using Content = std::tuple<int, int, int, std::vector<int64_t>>;

  const ProgramStep& StepOf(size_t fetch) const {
    return program_.steps[static_cast<size_t>(fetches_[fetch])];
  }

  void AddReceived(const ProgramStep& step) {
    const Terms terms = CheckedHolders(step);
    for (const std::vector<FetchSource>& holders : terms) {
      for (const FetchSource& each : holders) {
        if (each.worker == program_.worker) continue;
        received_[each.worker] +=
            Intersect(each.box, step.spec.region).Volume() * DtypeBytes(step.dtypes[0]);
      }
    }
    if (terms.size() == 1 && IsWhole(terms[0], step.spec.region)) {
      apart_.insert(terms[0][0].worker);
    }
  }

  void AddSent(size_t fetch, int form) {
    const ProgramStep& step = StepOf(fetch);
    for (const SentPiece& piece : PlanSent(*step.stage, program_.worker)) {
      sent_[piece.reader].push_back(NumberOf(fetch, step.held, form, piece.box));
    }
  }

  int NumberOf(size_t fetch, ArrayId held, int form, const Box& box) {
    std::vector<int64_t> sides(box.begin.begin(), box.begin.end());
    sides.insert(sides.end(), box.end.begin(), box.end.end());
    const auto [found, is_new] =
        numbers_.try_emplace({held.step, held.output, form, std::move(sides)},
                             static_cast<int>(pieces_.size()));
    if (is_new) pieces_.push_back({static_cast<int>(fetch), box, 1});
    return found->second;
  }

  int64_t BytesOf(int piece) const {
    const SingleMessages& each = pieces_[static_cast<size_t>(piece)];
    return each.box.Volume() *
           DtypeBytes(StepOf(static_cast<size_t>(each.fetch)).dtypes[0]);
  }

  void CountReceived() {
    for (const auto& [sender, bytes] : received_) {
      if (apart_.count(sender) > 0) {
        outline_.apart.emplace_back(sender, bytes);
      } else {
        outline_.received_bytes += bytes;
      }
    }
  }

  void CountSent() {
    std::set<std::vector<int>> messages;
    for (auto& [reader, pieces] : sent_) messages.insert(std::move(pieces));
    std::map<std::tuple<int, int, std::vector<int64_t>>, size_t> alike;
    for (const std::vector<int>& pieces : messages) {
      if (pieces.size() > 1) {
        for (int piece : pieces) outline_.packed_bytes += BytesOf(piece);
        continue;
      }
      const SingleMessages& single = pieces_[static_cast<size_t>(pieces[0])];
      const ArrayId held = StepOf(static_cast<size_t>(single.fetch)).held;
      const Shape extents = single.box.Extents();
      const auto [found, is_new] =
          alike.try_emplace({held.step, held.output, {extents.begin(), extents.end()}},
                            outline_.alone.size());
      if (is_new) {
        outline_.alone.push_back(single);
      } else {
        ++outline_.alone[found->second].count;
      }
    }
  }

  const WorkerProgram& program_;
  const std::vector<int>& fetches_;
  std::map<int, int64_t> received_;       // by sender, bytes
  std::set<int> apart_;                   // senders
  std::map<int, std::vector<int>> sent_;  // by reader, numbers of pieces
  std::map<Content, int> numbers_;        // of pieces
  std::vector<SingleMessages> pieces_;    // by number
  ExchangeOutline outline_;
};

}  // namespace

ExchangeOutline OutlineExchange(const WorkerProgram& program,
                                const std::vector<int>& fetches,
                                const std::vector<int>& forms) {
  return Outliner(program, fetches).Run(forms);
}

std::vector<FetchPiece> OutlineTerms(const ProgramStep& fetch) {
  const Box& region = fetch.spec.region;
  std::vector<FetchPiece> kept;
  if (region.Volume() == 0) return kept;
  int alike = 0;
  int last = kFill;
  int term = 0;
  for (const std::vector<FetchSource>& holders : CheckedHolders(fetch)) {
    FetchPiece piece{kFill, region, Relative(region, region.begin), term++};
    int kind = kFill;
    if (IsWhole(holders, region)) {
      piece.source = holders[0].worker;
      piece.from = Relative(region, holders[0].box.begin);
      kind = piece.source == fetch.spec.worker ? 0 : 1;
    }
    alike = kind == last ? alike + 1 : 1;
    last = kind;
    if (alike <= kAlikeTerms) kept.push_back(std::move(piece));
  }
  return kept;
}

}  // namespace tofu
