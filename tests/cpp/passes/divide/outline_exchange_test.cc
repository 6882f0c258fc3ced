// Compares the outline of an exchange with its messages, made one by one.
#include "passes/divide/outline_exchange.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "support/mock_graph.h"

namespace tofu {
namespace {

using Content = std::vector<std::pair<int, std::string>>;  // a step, and a box

// The fetches of a program in exchanges of up to four.
std::vector<std::vector<int>> Exchanges(const WorkerProgram& program) {
  std::vector<std::vector<int>> exchanges(1);
  for (size_t s = 0; s < program.steps.size(); ++s) {
    if (program.steps[s].kind != ProgramStep::Kind::kFetch) continue;
    exchanges.back().push_back(static_cast<int>(s));
    if (exchanges.back().size() == 4) exchanges.emplace_back();
  }
  return exchanges;
}

int64_t BytesOf(const ProgramStep& step, const Box& box) {
  return box.Volume() * DtypeBytes(step.dtypes[0]);
}

void ExpectReceived(const WorkerProgram& program, const std::vector<int>& fetches,
                    const ExchangeOutline& outline) {
  std::map<int, int64_t> bytes;
  std::set<int> whole;
  for (int fetch : fetches) {
    const ProgramStep& step = program.steps[fetch];
    for (const FetchPiece& piece : step.spec.pieces) {
      if (piece.source == kFill || piece.source == program.worker) continue;
      bytes[piece.source] += BytesOf(step, piece.to);
      if (step.spec.num_terms == 1 && piece.to.Extents() == step.shapes[0]) {
        whole.insert(piece.source);
      }
    }
  }
  int64_t others = 0;
  std::vector<std::pair<int, int64_t>> apart;
  for (const auto& [sender, size] : bytes) {
    if (whole.count(sender) > 0) {
      apart.emplace_back(sender, size);
    } else {
      others += size;
    }
  }
  EXPECT_EQ(outline.received_bytes, others);
  EXPECT_EQ(outline.apart, apart);
}

void ExpectSent(const WorkerProgram& program, const std::vector<int>& fetches,
                const ExchangeOutline& outline) {
  std::map<int, std::pair<Content, int64_t>> messages;
  for (int fetch : fetches) {
    const ProgramStep& step = program.steps[fetch];
    for (const SentPiece& piece : step.sent) {
      auto& [content, bytes] = messages[piece.reader];
      content.emplace_back(step.held.step * 10 + step.held.output, BoxText(piece.box));
      bytes += BytesOf(step, piece.box);
    }
  }
  std::map<Content, int64_t> different;
  for (const auto& [reader, message] : messages) different.insert(message);
  int64_t packed = 0;
  int64_t alone = 0;
  for (const auto& [content, bytes] : different) {
    (content.size() > 1 ? packed : alone) += bytes;
  }
  int64_t found = 0;
  for (const SingleMessages& each : outline.alone) {
    found += each.count * BytesOf(program.steps[fetches[each.fetch]], each.box);
  }
  EXPECT_EQ(outline.packed_bytes, packed);
  EXPECT_EQ(found, alone);
}

TEST(OutlineExchange, HasTheBytesOfItsMessages) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const MockGraph mock = RandomGraph(&random);
    const Plan plan = RandomPlan(mock, {3, 2}, &random);
    for (int worker : {0, 4}) {
      const auto program = MakeWorkerProgram(mock.graph, mock.table, plan, worker);
      for (const std::vector<int>& fetches : Exchanges(program)) {
        const std::vector<int> forms(fetches.size(), 0);
        const ExchangeOutline outline = OutlineExchange(program, fetches, forms);
        ExpectReceived(program, fetches, outline);
        ExpectSent(program, fetches, outline);
      }
    }
  }
}

// The pieces of a fetch by term: the only one of a term that is the whole region.
std::vector<int> WholePieces(const ProgramStep& step) {
  std::vector<int> found(step.spec.num_terms, kFill);
  for (int term = 0; term < step.spec.num_terms; ++term) {
    std::vector<const FetchPiece*> pieces;
    for (const FetchPiece& piece : step.spec.pieces) {
      if (piece.term == term) pieces.push_back(&piece);
    }
    if (pieces.size() == 1 && pieces[0]->to.Extents() == step.shapes[0]) {
      found[term] = pieces[0]->source;
    }
  }
  return found;
}

TEST(OutlineExchange, KeepsAPieceOfEachTerm) {
  int several = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const MockGraph mock = RandomGraph(&random);
    const Plan plan = RandomPlan(mock, {3, 2}, &random);
    const auto program = MakeWorkerProgram(mock.graph, mock.table, plan, 4);
    for (const ProgramStep& step : program.steps) {
      if (step.kind != ProgramStep::Kind::kFetch || step.spec.pieces.empty()) continue;
      const std::vector<int> whole = WholePieces(step);
      std::vector<int> expected;  // without the fourth and later of a kind
      const auto kind = [](int source) {
        return source == kFill || source == 4 ? source : 5;
      };
      for (size_t term = 0; term < whole.size(); ++term) {
        const bool is_fourth = term >= 3 && kind(whole[term]) == kind(whole[term - 1]) &&
                               kind(whole[term]) == kind(whole[term - 2]) &&
                               kind(whole[term]) == kind(whole[term - 3]);
        if (!is_fourth) expected.push_back(whole[term]);
      }
      std::vector<int> found;
      for (const FetchPiece& piece : OutlineTerms(step)) found.push_back(piece.source);
      EXPECT_EQ(found, expected) << step.name;
      several += expected.size() < whole.size() ? 1 : 0;
    }
  }
  EXPECT_GT(several, 0);
}

}  // namespace
}  // namespace tofu
