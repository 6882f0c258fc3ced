#include "passes/search/pins.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "graph/box.h"
#include "graph/names.h"

namespace tofu {
namespace {

constexpr size_t kMaxTiesTold = 3;

std::string PinText(const Cuts& cuts) {
  std::string text;
  for (int cut : cuts) text += (text.empty() ? "" : ",") + std::to_string(cut);
  return text;
}

int FindPinned(const Graph& graph, const std::string& name) {
  const int entry = FindEntry(graph, name);
  TOFU_CHECK_USER(entry >= 0, Blame::kPlan)
      << "pin of \"" << name << "\": found no tensor of that name among "
      << graph.num_nodes() << " nodes, expected a variable, an operator or another "
      << "output such as \"split[1]\"; tofu plan lists the tensors";
  return entry;
}

// Repeats a single pinned dimension for every step.
Cuts Spread(const std::string& name, const std::vector<int>& dims, size_t steps) {
  TOFU_CHECK_USER(dims.size() == steps || dims.size() == 1, Blame::kPlan)
      << "pin of \"" << name << "\": found " << dims.size() << " cuts, expected one for "
      << "each of the " << steps << " steps, or one for all; -1 leaves a step out";
  return dims.size() == steps ? Cuts(dims) : Cuts(steps, dims[0]);
}

void CheckPin(const std::string& name, const Shape& shape, const Cuts& cuts,
              const std::vector<int>& parts) {
  CutExtents extents(shape);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (cuts[i] == kReplicated) continue;
    const bool exists = cuts[i] >= 0 && cuts[i] < static_cast<int>(shape.size());
    TOFU_CHECK_USER(exists, Blame::kPlan)
        << "pin of \"" << name << "\", step " << i + 1 << ": found dimension " << cuts[i]
        << ", expected -1 (whole) or one of its " << shape.size() << " dimensions";
    TOFU_CHECK_USER(extents.CanCut(cuts[i], parts[i]), Blame::kPlan)
        << "pin of \"" << name << "\", step " << i + 1 << ": found "
        << extents.left(cuts[i]) << " elements left along dimension " << cuts[i]
        << ", expected at least " << parts[i] << ", one for each part; pin another "
        << "dimension or -1";
    extents.Cut(cuts[i], parts[i]);
  }
}

// The ties that connect two entries of one class, in order.
std::vector<Tie> TiesBetween(const CoarseGraph& coarse, int from, int to) {
  std::map<int, std::vector<size_t>> touching;  // entry -> ties
  for (size_t i = 0; i < coarse.ties.size(); ++i) {
    touching[coarse.ties[i].a].push_back(i);
    touching[coarse.ties[i].b].push_back(i);
  }
  std::map<int, Tie> reached_by;  // entry -> tie that leads back towards `from`
  std::vector<int> queue = {from};
  for (size_t next = 0; next < queue.size() && reached_by.count(to) == 0; ++next) {
    for (size_t i : touching[queue[next]]) {
      Tie tie = coarse.ties[i];
      if (tie.a != queue[next]) std::swap(tie.a, tie.b);
      if (tie.b == from || !reached_by.emplace(tie.b, tie).second) continue;
      queue.push_back(tie.b);
    }
  }
  std::vector<Tie> path;
  for (int entry = to; entry != from; entry = path.back().a) {
    const auto it = reached_by.find(entry);
    if (it == reached_by.end()) return {};
    path.push_back(it->second);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::string TieText(const Graph& graph, const Tie& tie) {
  std::string both =
      "\"" + EntryName(graph, tie.a) + "\" and \"" + EntryName(graph, tie.b) + "\"";
  switch (tie.reason) {
    case Tie::Reason::kElementwise:
      return both + " belong to \"" + graph.nodes[tie.node].name +
             "\", which works element by element";
    case Tie::Reason::kParameter:
      return both + " are a parameter or state and its update";
    case Tie::Reason::kTimestep:
      return both + " correspond in unrolled timesteps";
    case Tie::Reason::kRepeat:
      return both + " are the same, computed twice";
  }
  return both;
}

std::string WhyTied(const Graph& graph, const CoarseGraph& coarse, int a, int b) {
  const std::vector<Tie> ties = TiesBetween(coarse, a, b);
  if (ties.empty()) return "they are one tensor";
  std::string text;
  for (size_t i = 0; i < ties.size() && i < kMaxTiesTold; ++i) {
    if (i > 0) text += ", and ";
    text += TieText(graph, ties[i]);
  }
  if (ties.size() > kMaxTiesTold) {
    text += ", and so on (" + std::to_string(ties.size()) + " such ties)";
  }
  return text;
}

}  // namespace

std::map<int, Cuts> PinnedEntries(const Graph& graph, const Pins& pins, size_t steps) {
  std::map<int, Cuts> pinned;
  for (const auto& [name, dims] : pins) {
    pinned.emplace(FindPinned(graph, name), Spread(name, dims, steps));
  }
  return pinned;
}

std::vector<Cuts> ResolvePins(const Graph& graph, const CoarseGraph& coarse,
                              const Pins& pins, const std::vector<int>& parts) {
  struct Pinned {
    std::string name;
    int entry = 0;
    Cuts cuts;
  };
  std::vector<Pinned> pinned;
  for (const auto& [name, dims] : pins) {
    const int entry = FindPinned(graph, name);
    const Cuts cuts = Spread(name, dims, parts.size());
    CheckPin(name, graph.shapes[entry], cuts, parts);
    pinned.push_back({name, entry, cuts});
  }
  std::vector<Cuts> given(coarse.tensors.size(), Cuts(parts.size(), kFree));
  std::map<int, const Pinned*> first;  // class -> the pin that decided it
  for (const Pinned& pin : pinned) {
    const int tensor = coarse.tensor_class[pin.entry];
    const Pinned& other = *first.emplace(tensor, &pin).first->second;
    TOFU_CHECK_USER(other.cuts == pin.cuts, Blame::kPlan)
        << "pins \"" << other.name << "=" << PinText(other.cuts) << "\" and \""
        << pin.name << "=" << PinText(pin.cuts) << "\" conflict: found "
        << "different cuts, expected equal ones, because "
        << WhyTied(graph, coarse, other.entry, pin.entry) << "; drop one of the two pins";
    given[tensor] = pin.cuts;
  }
  return given;
}

}  // namespace tofu
