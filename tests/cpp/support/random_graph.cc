// Random graphs, plans and values for mock_graph.h.
#include <algorithm>
#include <utility>

#include "support/mock_graph.h"

namespace tofu {
namespace {

using Random = std::mt19937;

int Below(int n, Random* random) {
  return static_cast<int>((*random)() % static_cast<unsigned>(n));
}

// Grows a graph by operators on its tensors; new operands are variables.
class MockGrower {
 public:
  explicit MockGrower(Random* random) : random_(*random) {}

  MockGraph Grow(int operators) {
    live_ = {mock_.Variable("x", {PickSize(), PickSize()}),
             mock_.Variable("image", {PickSize(), PickSize(), 12})};
    while (operators > 0) {
      const NodeEntry in = live_[Below(static_cast<int>(live_.size()), &random_)];
      AnyDtype();
      if (AddOperator(in)) --operators;
    }
    AddHeads();
    return std::move(mock_);
  }

 private:
  int64_t PickSize() {
    constexpr int64_t kSizes[] = {4, 5, 6, 7, 8, 12};
    return kSizes[Below(6, &random_)];
  }

  void AnyDtype() {
    constexpr int kDtypes[] = {0, 0, 1, 2, 3, 6, 7};  // 7: bool
    mock_.SetDtype(kDtypes[Below(7, &random_)]);
  }

  NodeEntry NewVariable(const Shape& shape) {
    AnyDtype();
    return mock_.Variable("v" + std::to_string(mock_.graph.num_nodes()), shape);
  }

  // An entry of this shape, or a new variable.
  NodeEntry Partner(const Shape& shape) {
    std::vector<NodeEntry> partners = {NewVariable(shape)};
    for (NodeEntry entry : live_) {
      if (mock_.shape(entry) == shape) partners.push_back(entry);
    }
    return partners[Below(static_cast<int>(partners.size()), &random_)];
  }

  bool AddOperator(NodeEntry in) {
    const Shape shape = mock_.shape(in);
    const int rank = static_cast<int>(shape.size());
    switch (Below(4, &random_)) {
      case 0:
        Keep(mock_.Elementwise(Below(2, &random_) == 0 ? "add" : "mul",
                               {in, Partner(shape)}));
        return true;
      case 1:
        return AddForAnyRank(in, rank);
      default:
        if (rank == 1) return AddForVector(in);
        return rank == 2 ? AddForMatrix(in, shape) : AddForImage(in, shape);
    }
  }

  bool AddForAnyRank(NodeEntry in, int rank) {
    constexpr const char* kReductions[] = {"sum_axis", "prod_axis", "max_axis",
                                           "min_axis"};
    switch (Below(3, &random_)) {
      case 0:
        Keep(mock_.Undescribed(in));
        return true;
      case 1:
        Keep(mock_.Elementwise("noise", {in}));
        return true;
      default:
        if (rank < 2) return false;
        Keep(
            mock_.ReduceAxis(kReductions[Below(4, &random_)], in, Below(rank, &random_)));
        return true;
    }
  }

  bool AddForVector(NodeEntry in) {
    if (Below(2, &random_) == 0 && mock_.shape(in)[0] % 2 == 0) {
      Keep(mock_.SecondHalf(in));
    } else if (mock_.shape(in)[0] <= 24) {
      Keep(mock_.BroadcastRows(in, PickSize()));
    } else {
      return false;
    }
    return true;
  }

  bool AddForMatrix(NodeEntry in, const Shape& shape) {
    switch (Below(3, &random_)) {
      case 0: {
        const int64_t hidden = PickSize();
        Keep(mock_.FullyConnected(in, Partner({hidden, shape[1]}), Partner({hidden})));
        return true;
      }
      case 1: {
        const NodeEntry moments = mock_.Moments(in);
        for (int output = 0; output < 3; ++output) {
          if (Below(2, &random_) == 0) Keep({moments.node, output});
        }
        return true;
      }
      default:
        Keep(mock_.Flatten(in));
        return true;
    }
  }

  bool AddForImage(NodeEntry in, const Shape& shape) {
    const int stride = 1 + Below(2, &random_);
    if (shape[2] < 4) return false;
    if (Below(2, &random_) == 0) {
      Keep(mock_.MaxPool1d(in, 2 + Below(2, &random_), stride, 1));
    } else {
      const int window = 1 + Below(4, &random_);
      const int pad = std::min(Below(3, &random_), window / 2);
      Keep(mock_.Conv1d(in, Partner({PickSize(), shape[1], window}), stride, pad));
    }
    return true;
  }

  void Keep(NodeEntry entry) { live_.push_back(entry); }

  // Makes the last tensor an output, and others heads of any role, some twice.
  void AddHeads() {
    mock_.Head(live_.back(), "output");
    for (int i = 0; i < 4; ++i) {
      const NodeEntry entry = live_[Below(static_cast<int>(live_.size()), &random_)];
      mock_.Head(entry, Below(2, &random_) == 0 ? "output" : OtherRole(entry));
    }
  }

  // The role of a head of a variable of its shape, if there is one: then the head has the
  // variable's tiles.
  std::string OtherRole(NodeEntry entry) {
    const std::string kind = Below(2, &random_) == 0 ? "gradient:" : "aux:";
    for (int node = 0; node < mock_.graph.num_nodes(); ++node) {
      const Node& n = mock_.graph.nodes[node];
      if (!n.is_variable() || mock_.shape({node, 0}) != mock_.shape(entry)) continue;
      return kind + n.name;
    }
    return kind + "unknown";
  }

  Random& random_;
  MockGraph mock_;
  std::vector<NodeEntry> live_;
};

// One of `choices` or none. Every part gets an element; parts need not be equal.
int RandomCut(const std::vector<int>& choices, int parts, Shape* extents,
              Random* random) {
  std::vector<int> fitting = {kReplicated};
  for (int choice : choices) {
    // Listed twice, because cuts test more than no cuts do.
    if ((*extents)[choice] >= parts) fitting.insert(fitting.end(), 2, choice);
  }
  const int cut = fitting[Below(static_cast<int>(fitting.size()), random)];
  if (cut != kReplicated) (*extents)[cut] /= parts;
  return cut;
}

}  // namespace

Plan ReplicatedPlan(const MockGraph& mock, const std::vector<int>& parts) {
  Plan plan;
  plan.parts = parts;
  const std::vector<int> none(parts.size(), kReplicated);
  plan.tensor_cuts.assign(mock.graph.num_entries(), none);
  plan.op_cuts.assign(mock.graph.num_nodes(), none);
  plan.node_bytes.assign(mock.graph.num_nodes(), 0);
  plan.step_bytes.assign(parts.size(), 0);
  return plan;
}

MockGraph RandomGraph(Random* random) { return MockGrower(random).Grow(8); }

TileShares RandomShares(const std::vector<int>& parts, Random* random) {
  TileShares shares;
  for (int count : parts) {
    std::vector<int>& step = shares.of_steps.emplace_back();
    if (Below(3, random) == 0) continue;
    for (int part = 0; part < count; ++part) step.push_back(1 + Below(9, random));
  }
  if (Below(3, random) == 0) shares.multiple = 2 + Below(2, random);
  return Normal(std::move(shares));
}

Plan RandomPlan(const MockGraph& mock, const std::vector<int>& parts, Random* random) {
  Plan plan = ReplicatedPlan(mock, parts);
  for (int entry = 0; entry < mock.graph.num_entries(); ++entry) {
    Shape extents = mock.graph.shapes[entry];
    std::vector<int> dims;
    for (size_t d = 0; d < extents.size(); ++d) dims.push_back(static_cast<int>(d));
    for (size_t step = 0; step < parts.size(); ++step) {
      plan.tensor_cuts[entry][step] = RandomCut(dims, parts[step], &extents, random);
    }
  }
  // Heads that belong to a variable are cut like the variable.
  for (size_t h = 0; h < mock.graph.heads.size(); ++h) {
    const std::string& role = mock.graph.head_roles[h];
    for (int node = 0; node < mock.graph.num_nodes(); ++node) {
      const Node& n = mock.graph.nodes[node];
      if (!n.is_variable() || role.substr(role.find(':') + 1) != n.name) continue;
      plan.tensor_cuts[mock.graph.entry_id(mock.graph.heads[h])] =
          plan.tensor_cuts[mock.graph.first_entry[node]];
    }
  }
  for (int node = 0; node < mock.graph.num_nodes(); ++node) {
    const StrategyRow* row = mock.table.row(node);
    if (row == nullptr) continue;
    Shape extents;
    for (size_t v = 0; v < row->vars.size(); ++v) {
      extents.push_back(VarExtent(*row, static_cast<int>(v), mock.graph, node));
    }
    for (size_t step = 0; step < parts.size(); ++step) {
      plan.op_cuts[node][step] =
          RandomCut(row->splittable, parts[step], &extents, random);
    }
  }
  return plan;
}

void LetSomeWait(const MockGraph& mock, Plan* plan, Random* random) {
  std::vector<bool> may_wait(static_cast<size_t>(mock.graph.num_entries()), true);
  for (NodeEntry head : mock.graph.heads) may_wait[mock.graph.entry_id(head)] = false;
  const auto takes = [&](int cut) { return cut == kReplicated && Below(2, random) == 0; };
  for (int node = 0; node < mock.graph.num_nodes(); ++node) {
    const StrategyRow* row = mock.table.row(node);
    const Node& n = mock.graph.nodes[node];
    for (size_t step = 0; step < plan->parts.size() && !n.is_variable(); ++step) {
      int& cut = plan->op_cuts[node][step];
      if (row != nullptr && row->terms >= 0 && takes(cut)) cut = row->terms;
      for (int i = 0; i < n.num_outputs; ++i) {
        const int entry = mock.graph.entry_id({node, i});
        int& of_tensor = plan->tensor_cuts[entry][step];
        const bool is_listed =
            row != nullptr && i < static_cast<int>(row->outputs.size());
        const auto reducer = is_listed ? row->outputs[i].reduce.find(cut)
                                       : std::map<int, Reducer>::const_iterator();
        const bool is_sum = !is_listed || reducer == row->outputs[i].reduce.end() ||
                            reducer->second == Reducer::kSum;
        if (may_wait[entry] && is_sum && takes(of_tensor)) of_tensor = kTerms;
      }
    }
  }
}

std::map<std::string, Array> RandomValues(const Graph& graph, Random* random) {
  std::uniform_real_distribution<double> around_one(0.8, 1.2);
  std::map<std::string, Array> values;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (!graph.nodes[node].is_variable()) continue;
    Array array(graph.shape({node, 0}));
    for (double& value : array.data) value = around_one(*random);
    values.emplace(graph.nodes[node].name, std::move(array));
  }
  return values;
}

}  // namespace tofu
