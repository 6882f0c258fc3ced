// The programs of all workers, made one by one, side by side: their values are those of
// the serial graph, and each worker sends what the others read.
#include "passes/divide/worker_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "graph/box.h"
#include "passes/divide/plan_stage.h"
#include "support/mock_graph.h"
#include "support/recount.h"

namespace tofu {
namespace {

constexpr unsigned kSeeds = 100;

using Kind = ProgramStep::Kind;

double Combined(Reducer reduce, double a, double b) {
  switch (reduce) {
    case Reducer::kLogSumExp:
      return std::log(std::exp(a) + std::exp(b));
    case Reducer::kMax:
      return std::max(a, b);
    case Reducer::kMin:
      return std::min(a, b);
    case Reducer::kProd:
      return a * b;
    case Reducer::kWeighted:
    case Reducer::kApart:
      ADD_FAILURE() << "the terms need weights";
      break;
    case Reducer::kSum:
      break;
  }
  return a + b;
}

// Runs programs of all workers, and counts the bytes that cross between them.
class SideBySide {
 public:
  SideBySide(const MockGraph& mock, const Plan& plan, std::map<std::string, Array> whole)
      : mock_(mock), plan_(plan), whole_(std::move(whole)) {
    for (int w = 0; w < plan.workers(); ++w) {
      programs_.push_back(MakeWorkerProgram(mock.graph, mock.table, plan, w));
      std::map<std::string, int>& steps = steps_.emplace_back();
      for (size_t s = 0; s < programs_[w].steps.size(); ++s) {
        steps.emplace(programs_[w].steps[s].name, static_cast<int>(s));
      }
      values_.emplace_back(programs_[w].steps.size());
    }
  }

  const std::vector<WorkerProgram>& programs() const { return programs_; }

  const Array& Value(int worker, ArrayId array) {
    std::optional<std::vector<Array>>& known = values_[worker][array.step];
    if (!known) known = Run(worker, programs_[worker].steps[array.step]);
    return (*known)[array.output];
  }

  // All fetches of an owner's array, by name: the bytes that all workers read, which are
  // those that their owners send.
  int64_t ExpectMirrored() {
    int64_t bytes = 0;
    std::map<std::pair<std::string, std::pair<int, int>>, Box> sent;
    for (const WorkerProgram& program : programs_) {
      for (const ProgramStep& step : program.steps) {
        for (const SentPiece& piece : step.sent) {
          const bool added =
              sent.emplace(std::make_pair(step.name,
                                          std::make_pair(program.worker, piece.reader)),
                           piece.box)
                  .second;
          EXPECT_TRUE(added) << step.name << ": two pieces for a reader";
        }
      }
    }
    size_t read = 0;
    for (const WorkerProgram& program : programs_) {
      for (const ProgramStep& step : program.steps) {
        for (const FetchPiece& piece : step.spec.pieces) {
          if (piece.source == kFill || piece.source == program.worker) continue;
          ++read;
          bytes += piece.to.Volume() * DtypeBytes(step.dtypes[0]);
          const auto found = sent.find({step.name, {piece.source, program.worker}});
          if (found == sent.end()) {
            ADD_FAILURE() << step.name << ": worker " << piece.source << " sends nothing";
          } else {
            EXPECT_EQ(found->second, piece.from) << step.name;
          }
        }
      }
    }
    EXPECT_EQ(read, sent.size());
    return bytes;
  }

 private:
  std::vector<Array> Run(int worker, const ProgramStep& step) {
    switch (step.kind) {
      case Kind::kVariable:
        return {Crop(whole_.at(step.name), TileOf(worker, step))};
      case Kind::kFetch:
        return {Fetched(worker, step)};
      case Kind::kConstant:
        if (step.node < 0) return {Array(step.shapes[0])};
        break;
      case Kind::kRun:
        break;
    }
    EXPECT_TRUE(step.takes_part) << step.name;
    return RunNode(worker, step);
  }

  Box TileOf(int worker, const ProgramStep& step) const {
    const int entry = mock_.graph.entry_id({step.node, 0});
    return TileBox(mock_.graph.shapes[entry], plan_.tensor_cuts[entry], plan_.division(),
                   WorkerDigits(worker, plan_.parts));
  }

  // The operator alone, on variables of its inputs' shapes.
  std::vector<Array> RunNode(int worker, const ProgramStep& step) {
    Graph graph;
    std::map<std::string, Array> inputs;
    Node node = mock_.graph.nodes[step.node];
    node.attrs = step.attrs;
    node.inputs.clear();
    for (ArrayId input : step.inputs) {
      Node variable;
      variable.name = "in" + std::to_string(graph.nodes.size());
      const Array& value = Value(worker, input);
      inputs.emplace(variable.name, value);
      node.inputs.push_back({static_cast<int>(graph.nodes.size()), 0});
      graph.nodes.push_back(std::move(variable));
      graph.shapes.push_back(value.shape);
      graph.dtypes.push_back(0);
    }
    graph.nodes.push_back(std::move(node));
    graph.shapes.insert(graph.shapes.end(), step.shapes.begin(), step.shapes.end());
    graph.dtypes.insert(graph.dtypes.end(), step.dtypes.begin(), step.dtypes.end());
    IndexEntries(&graph);
    std::vector<Array> values = RunGraph(graph, inputs);
    values.erase(values.begin(),
                 values.begin() + static_cast<std::ptrdiff_t>(step.inputs.size()));
    return values;
  }

  Array Fetched(int worker, const ProgramStep& step) {
    std::optional<Array> sum;
    for (int term = 0; term < step.spec.num_terms; ++term) {
      Array value(step.shapes[0]);
      for (const FetchPiece& piece : step.spec.pieces) {
        if (piece.source == kFill) {
          ForEachIndex(piece.to, [&](const Shape& index) {
            value.at(index) = std::stod(step.spec.fill);
          });
        } else if (piece.term == term) {
          Copy(piece, Held(piece.source, step.name), &value);
        }
      }
      if (!sum) {
        sum = value;
        continue;
      }
      for (size_t i = 0; i < value.data.size(); ++i) {
        sum->data[i] = Combined(step.spec.reduce, sum->data[i], value.data[i]);
      }
    }
    EXPECT_EQ(step.spec.worker, worker);
    return *sum;
  }

  const Array& Held(int owner, const std::string& fetch) {
    return Value(owner, programs_[owner].steps[steps_[owner].at(fetch)].held);
  }

  static void Copy(const FetchPiece& piece, const Array& source, Array* target) {
    const Array part = Crop(source, piece.from);
    size_t next = 0;
    ForEachIndex(piece.to,
                 [&](const Shape& index) { target->at(index) = part.data[next++]; });
  }

  const MockGraph& mock_;
  const Plan& plan_;
  const std::map<std::string, Array> whole_;
  std::vector<WorkerProgram> programs_;
  std::vector<std::map<std::string, int>> steps_;  // [worker], by name
  std::vector<std::vector<std::optional<std::vector<Array>>>> values_;  // [worker][step]
};

void ExpectClose(const Array& expected, const Array& found, const std::string& where) {
  ASSERT_EQ(expected.shape, found.shape) << where;
  for (size_t i = 0; i < expected.data.size(); ++i) {
    const double most = 1e-9 * (1 + std::abs(expected.data[i]));
    ASSERT_LE(std::abs(expected.data[i] - found.data[i]), most) << where;
  }
}

bool AllFinite(const std::vector<Array>& values) {
  for (const Array& array : values) {
    for (double value : array.data) {
      if (!std::isfinite(value)) return false;
    }
  }
  return true;
}

// The tile of a head: that of the variable that it is a new value of, or the entry's.
Box HeadBox(const MockGraph& mock, const Plan& plan, size_t head, int worker) {
  const std::string& role = mock.graph.head_roles[head];
  int entry = mock.graph.entry_id(mock.graph.heads[head]);
  const size_t colon = role.find(':');
  for (int node = 0; colon != std::string::npos && node < mock.graph.num_nodes();
       ++node) {
    const Node& n = mock.graph.nodes[node];
    const int other = mock.graph.entry_id({node, 0});
    if (n.is_variable() && n.name == role.substr(colon + 1) &&
        mock.graph.shapes[other] == mock.graph.shapes[entry]) {
      entry = other;
    }
  }
  return TileBox(mock.graph.shapes[entry], plan.tensor_cuts[entry], plan.division(),
                 WorkerDigits(worker, plan.parts));
}

class WorkerProgramRandom : public testing::TestWithParam<std::vector<int>> {};

TEST_P(WorkerProgramRandom, ComputesWhatTheSerialGraphDoes) {
  int64_t shared = 0;
  int compared = 0;
  for (unsigned seed = 0; seed < kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const MockGraph mock = RandomGraph(&random);
    Plan plan = RandomPlan(mock, GetParam(), &random);
    if (seed % 2 == 1) plan.shares = RandomShares(plan.parts, &random);
    if (seed % 4 > 1) LetSomeWait(mock, &plan, &random);
    const auto whole = RandomValues(mock.graph, &random);
    const std::vector<Array> serial = RunGraph(mock.graph, whole);
    SideBySide all(mock, plan, whole);
    const WorkerProgram& first = all.programs()[0];
    int64_t received = 0;
    for (const ProgramStep& step : first.steps) received += step.received_bytes;
    EXPECT_EQ(all.ExpectMirrored(), received);
    EXPECT_LE(received + first.shared_bytes, Recount(mock.graph, mock.table, plan));
    shared += first.shared_bytes;
    if (!AllFinite(serial)) continue;
    ++compared;
    for (const WorkerProgram& program : all.programs()) {
      ASSERT_EQ(program.heads.size(), mock.graph.heads.size());
      EXPECT_EQ(program.shared_bytes, first.shared_bytes);
      for (size_t h = 0; h < program.heads.size(); ++h) {
        const Array& expected = serial[mock.graph.entry_id(mock.graph.heads[h])];
        ExpectClose(
            Crop(expected, HeadBox(mock, plan, h, program.worker)),
            all.Value(program.worker, program.heads[h].array),
            program.heads[h].role + " on worker " + std::to_string(program.worker));
      }
    }
  }
  EXPECT_GT(compared, static_cast<int>(kSeeds) / 2);
  EXPECT_GT(shared, 0);
}

void ExpectSamePieces(const std::vector<FetchPiece>& expected,
                      const std::vector<FetchPiece>& found) {
  ASSERT_EQ(expected.size(), found.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].source, found[i].source);
    EXPECT_EQ(expected[i].to, found[i].to);
    EXPECT_EQ(expected[i].term, found[i].term);
    if (expected[i].source == kFill) continue;
    EXPECT_EQ(expected[i].from, found[i].from);
  }
}

// Whether the steps are the same, though `later` makes its pieces only now.
void ExpectSame(int worker, const ProgramStep& with, const ProgramStep& later) {
  EXPECT_EQ(with.name, later.name);
  EXPECT_EQ(with.takes_part, later.takes_part);
  EXPECT_EQ(with.inputs, later.inputs);
  EXPECT_EQ(with.after, later.after);
  EXPECT_TRUE(later.sent.empty() && later.spec.pieces.empty());
  EXPECT_EQ(with.spec.num_terms, later.spec.num_terms);
  EXPECT_EQ(later.sends, !with.sent.empty());
  const auto is_others = [&](const FetchPiece& piece) {
    return piece.source != kFill && piece.source != worker;
  };
  EXPECT_EQ(later.receives,
            std::any_of(with.spec.pieces.begin(), with.spec.pieces.end(), is_others));
  if (with.kind != Kind::kFetch) return;
  if (with.takes_part) ExpectSamePieces(with.spec.pieces, PiecesOf(later).pieces);
  const std::vector<SentPiece> sent =
      later.sends ? PlanSent(*later.stage, worker) : std::vector<SentPiece>();
  ASSERT_EQ(with.sent.size(), sent.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(with.sent[i].reader, sent[i].reader);
    EXPECT_EQ(with.sent[i].box, sent[i].box);
  }
}

TEST_P(WorkerProgramRandom, MakesPiecesLater) {
  for (unsigned seed = 0; seed < kSeeds / 4 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const MockGraph mock = RandomGraph(&random);
    Plan plan = RandomPlan(mock, GetParam(), &random);
    if (seed % 2 == 1) plan.shares = RandomShares(plan.parts, &random);
    ProgramOptions options;
    options.pieces = false;
    for (int worker = 0; worker < plan.workers(); ++worker) {
      const auto with = MakeWorkerProgram(mock.graph, mock.table, plan, worker);
      const auto later = MakeWorkerProgram(mock.graph, mock.table, plan, worker, options);
      ASSERT_EQ(with.steps.size(), later.steps.size());
      for (size_t s = 0; s < with.steps.size(); ++s) {
        SCOPED_TRACE(with.steps[s].name);
        ExpectSame(worker, with.steps[s], later.steps[s]);
      }
    }
  }
}

TEST(WorkerProgram, HasAWorkerWithoutADrawSendNothing) {
  MockGraph mock;
  mock.Head(mock.Noise({}), "output");
  const Plan plan = ReplicatedPlan(mock, {3});
  for (int worker = 0; worker < 3; ++worker) {
    const auto program = MakeWorkerProgram(mock.graph, mock.table, plan, worker);
    size_t sent = 0;
    for (const ProgramStep& step : program.steps) sent += step.sent.size();
    EXPECT_EQ(sent, worker == 0 ? 2U : 0U);
  }
}

TEST(WorkerProgram, FetchesTheWeightsOfTermsApart) {
  MockGraph mock;
  const NodeEntry mean = mock.Moments(mock.Variable("x", {8, 4}));
  mock.Head(mean, "output");
  OutputAccess& output = mock.table.rows.back().outputs[0];
  output.reduce[0] = Reducer::kWeighted;
  output.weights = Weights{1, {0}};
  Plan plan = ReplicatedPlan(mock, {2, 2});
  plan.op_cuts[mean.node] = {0, 0};
  for (int worker = 0; worker < 4; ++worker) {
    const auto program = MakeWorkerProgram(mock.graph, mock.table, plan, worker);
    int weights = -1;
    int weighted = 0;
    for (size_t s = 0; s < program.steps.size(); ++s) {
      const ProgramStep& step = program.steps[s];
      if (step.spec.reduce == Reducer::kApart) {
        weights = static_cast<int>(s);
        EXPECT_EQ(step.shapes[0], (Shape{4, 1}));  // of a worker's piece of the 4 columns
        EXPECT_EQ(step.held.output, 1);
        EXPECT_EQ(step.received_bytes, 4 * 3 * 8);
      } else if (step.spec.reduce == Reducer::kWeighted) {
        ++weighted;
        EXPECT_EQ(step.inputs.back(), (ArrayId{weights, 0}));
        EXPECT_EQ(step.weighted_dims, std::vector<int>{0});
      }
    }
    EXPECT_GE(weights, 0);
    EXPECT_EQ(weighted, 1);
  }
  PartitionOptions options;
  options.fetch = FetchKind::kPlain;
  try {
    PartitionGraph(mock.graph, mock.table, plan, options);
    ADD_FAILURE() << "no operator of MXNet weighs terms";
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kTable);
    EXPECT_NE(std::string(error.what()).find("weighted"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, WorkerProgramRandom,
                         testing::Values(std::vector<int>{2}, std::vector<int>{3},
                                         std::vector<int>{2, 2}, std::vector<int>{7},
                                         std::vector<int>{3, 2},
                                         std::vector<int>{2, 2, 2},
                                         std::vector<int>{3, 2, 2}));

TEST(WorkerProgram, IsNoLargerForMoreWorkersThatItDoesNotReach) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {1 << 15, 4});
  NodeEntry y = x;
  for (int i = 0; i < 4; ++i) y = mock.Elementwise("mul", {y, x});
  mock.Head(y, "output");
  std::vector<size_t> steps;
  for (const int workers : {2, 1 << 14}) {
    Plan plan = ReplicatedPlan(mock, {workers});
    for (std::vector<int>& cuts : plan.tensor_cuts) cuts = {0};
    for (std::vector<int>& cuts : plan.op_cuts) cuts = {0};
    const WorkerProgram program = MakeWorkerProgram(mock.graph, mock.table, plan, 1);
    steps.push_back(program.steps.size());
    for (const ProgramStep& step : program.steps) EXPECT_TRUE(step.sent.empty());
  }
  EXPECT_EQ(steps[0], steps[1]);
}

}  // namespace
}  // namespace tofu
