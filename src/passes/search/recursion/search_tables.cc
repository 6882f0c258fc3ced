#include "passes/search/recursion/search_tables.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "graph/box.h"
#include "passes/coarsen/elementwise.h"
#include "passes/search/cost/slot_bytes.h"
#include "passes/search/tilings/patterns.h"

namespace tofu {
namespace {

using Matrix = std::vector<int64_t>;

template <typename Iterator>
size_t HashOf(Iterator begin, Iterator end, size_t start) {
  uint64_t hash = 0x9e3779b97f4a7c15ULL + start;
  for (; begin != end; ++begin) {
    hash = (hash ^ static_cast<uint32_t>(*begin)) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 29;
  }
  return static_cast<size_t>(hash);
}

// Whether alternative `t` costs no more than `s` for all cuts of every tensor.
bool Dominates(const std::vector<Matrix>& matrices, size_t count, size_t t, size_t s) {
  for (const Matrix& matrix : matrices) {
    const size_t width = matrix.size() / count;
    for (size_t c = 0; c < width; ++c) {
      if (matrix[t * width + c] > matrix[s * width + c]) return false;
    }
  }
  return true;
}

// Drops alternatives that cost no less than another for all cuts of the tensors; of
// equal alternatives the first stays.
std::vector<size_t> Undominated(const std::vector<Matrix>& matrices, size_t count) {
  std::vector<bool> keep(count, true);
  for (size_t s = 0; s < count; ++s) {
    for (size_t t = 0; t < count && keep[s]; ++t) {
      if (t == s || !keep[t] || !Dominates(matrices, count, t, s)) continue;
      keep[s] = s < t && Dominates(matrices, count, s, t);
    }
  }
  std::vector<size_t> kept;
  for (size_t s = 0; s < count; ++s) {
    if (keep[s]) kept.push_back(s);
  }
  return kept;
}

// Finds patterns, and replaces profiles that are in `exact`, or have one order, by their
// cuts. These come last: of equally good alternatives, reduce_core keeps the last.
template <typename Find>
std::vector<Cuts> Mixed(const PatternOptions& options, const std::vector<Cuts>* exact,
                        Find find, size_t* num_patterns, bool* complete) {
  std::vector<Cuts> all = find(options, complete);
  const auto is_pattern = [&](const Cuts& profile) {
    return exact == nullptr ||
           (!HasOneOrder(profile, options.parts) &&
            std::find(exact->begin(), exact->end(), profile) == exact->end());
  };
  const auto patterns_end = std::stable_partition(all.begin(), all.end(), is_pattern);
  *num_patterns = static_cast<size_t>(patterns_end - all.begin());
  if (patterns_end == all.end() || !*complete) return all;
  PatternOptions exact_options = options;
  exact_options.ordered = options.parts.size();
  exact_options.profiles.assign(patterns_end, all.end());
  all.erase(patterns_end, all.end());
  const std::vector<Cuts> cuts = find(exact_options, complete);
  all.insert(all.end(), cuts.begin(), cuts.end());
  return all;
}

// The positions in `all` of the first `count` of `some`; both have the same order.
std::vector<size_t> Positions(const std::vector<Cuts>& some, size_t count,
                              const std::vector<Cuts>& all) {
  std::vector<size_t> positions;
  for (size_t at = 0; positions.size() < count; ++at) {
    TOFU_CHECK(at < all.size()) << "a profile that is none of " << all.size();
    if (all[at] == some[positions.size()]) positions.push_back(at);
  }
  return positions;
}

// What restrictions say of a class; -1 where they say nothing.
int At(const std::vector<int>& of_classes, size_t number) {
  return of_classes.empty() ? -1 : of_classes[number];
}

Matrix Rows(const Matrix& matrix, size_t count, const std::vector<size_t>& kept) {
  const size_t width = matrix.size() / count;
  Matrix rows;
  rows.reserve(kept.size() * width);
  for (size_t s : kept) {
    rows.insert(rows.end(), &matrix[s * width], &matrix[s * width] + width);
  }
  return rows;
}

}  // namespace

SearchTables::SearchTables(const Graph& graph, const StrategyTable& table,
                           const CoarseGraph& coarse, std::vector<int> parts,
                           Restrictions restrictions, const CostModel& model,
                           size_t ordered)
    : graph_(graph),
      table_(table),
      coarse_(coarse),
      parts_(std::move(parts)),
      restrictions_(std::move(restrictions)),
      model_(model),
      ordered_(ordered) {
  std::map<std::tuple<bool, bool, int, Shape>, int> tensor_kinds;
  for (size_t c = 0; c < coarse.tensors.size(); ++c) {
    const int next = static_cast<int>(tensor_kinds.size());
    tensor_kinds_.push_back(
        tensor_kinds
            .emplace(
                std::tuple(MayBeWhole(static_cast<int>(c)), coarse.tensors[c].may_wait,
                           At(restrictions_.uneven_dims, c), coarse.tensors[c].shape),
                next)
            .first->second);
  }
  std::unordered_map<Key, int, Hash> slot_kinds;
  std::map<std::pair<int, int>, int> split_kinds;
  for (size_t p = 0; p < coarse.operators.size(); ++p) {
    const OpClass& op = coarse.operators[p];
    const std::pair kind(op.signature, At(restrictions_.uneven_vars, p));
    split_kinds_.push_back(
        split_kinds.emplace(kind, static_cast<int>(split_kinds.size())).first->second);
    key_.assign({op.elementwise ? op.signature : -1, static_cast<int>(op.nodes.size())});
    for (const OpSlot& slot : op.slots) {
      size_t first = 0;
      while (op.slots[first].tensor_class != slot.tensor_class) ++first;
      key_.insert(key_.end(), {slot.is_output ? 1 : 0, slot.index,
                               static_cast<int>(first), model_.MayOverlap(slot) ? 1 : 0});
    }
    const int next = static_cast<int>(slot_kinds.size());
    slot_kinds_.push_back(slot_kinds.emplace(key_, next).first->second);
  }
}

size_t SearchTables::Hash::operator()(const Key& key) const {
  return HashOf(key.begin(), key.end(), key.size());
}

size_t SearchTables::Hash::operator()(const KindCuts& key) const {
  const Cuts& cuts = key.given.cuts;
  size_t hash = HashOf(cuts.begin(), cuts.end(), static_cast<size_t>(key.kind));
  for (const Cuts& profile : key.given.profiles) {
    hash = HashOf(profile.begin(), profile.end(), hash);
  }
  if (key.given.exact != nullptr) hash += key.given.exact->size();
  return hash;
}

bool SearchTables::MayBeWhole(int tensor_class) const {
  const std::vector<bool>& whole = restrictions_.may_be_whole;
  return !whole.empty() && whole[tensor_class];
}

bool SearchTables::HasCosts(int op_class) const {
  const OpClass& op = coarse_.operators[op_class];
  const StrategyRow* row = table_.row(op.nodes[0]);
  return model_.CountsOperators() ||
         (row != nullptr && row->random && !op.slots.empty()) || op.HasOtherTensors();
}

std::vector<Cuts> SearchTables::TensorCuts(int tensor_class, const Given& given,
                                           size_t limit, size_t* num_patterns,
                                           bool* complete) const {
  const Shape& shape = coarse_.tensors[tensor_class].shape;
  const TensorFreedom free(MayBeWhole(tensor_class),
                           coarse_.tensors[tensor_class].may_wait,
                           At(restrictions_.uneven_dims, tensor_class));
  const PatternOptions options{parts_, ordered_, given.profiles, limit};
  const auto find = [&](const PatternOptions& of, bool* found_all) {
    return TensorPatterns(shape, given.cuts, restrictions_, free, of, found_all);
  };
  if (!AreAllOrdered()) {
    return Mixed(options, given.exact, find, num_patterns, complete);
  }
  if (!given.profiles.empty()) return find(options, complete);
  return TensorAlternatives(shape, given.cuts, parts_, restrictions_, free, limit,
                            complete);
}

std::vector<Cuts> SearchTables::OperatorCuts(int op_class, const Given& given,
                                             size_t limit, size_t* num_patterns,
                                             bool* complete) const {
  const OpClass& op = coarse_.operators[op_class];
  const SplitVariables variables =
      VariablesOf(graph_, table_, op.nodes[0], restrictions_, op.adds_terms,
                  At(restrictions_.uneven_vars, op_class));
  const PatternOptions options{parts_, ordered_, given.profiles, limit};
  const auto find = [&](const PatternOptions& of, bool* found_all) {
    return OperatorPatterns(variables, given.cuts, restrictions_, of, found_all);
  };
  if (!AreAllOrdered()) {
    return Mixed(options, given.exact, find, num_patterns, complete);
  }
  if (!given.profiles.empty()) return find(options, complete);
  return OperatorAlternatives(variables, given.cuts, parts_, restrictions_, limit,
                              complete);
}

const TensorChoices* SearchTables::Tensor(int tensor_class, const Given& given,
                                          size_t limit) {
  const KindCuts key{tensor_kinds_[tensor_class], given};
  const auto found = tensors_.find(key);
  if (found != tensors_.end()) {
    return found->second.alternatives.size() <= limit ? &found->second : nullptr;
  }
  const Shape& shape = coarse_.tensors[tensor_class].shape;
  bool complete = true;
  TensorChoices choices;
  choices.alternatives =
      TensorCuts(tensor_class, given, limit, &choices.num_patterns, &complete);
  if (!complete) return nullptr;
  TOFU_CHECK(!choices.alternatives.empty())
      << "tensor class " << tensor_class << " has no cuts";
  if (given.exact != nullptr) {
    choices.profiles = Tensor(tensor_class, given.AllProfiles(), limit);
    if (choices.profiles == nullptr) return nullptr;
    choices.of_profiles = Positions(choices.alternatives, choices.num_patterns,
                                    choices.profiles->alternatives);
  }
  choices.id = static_cast<int>(tensors_.size());
  for (size_t i = 0; i < choices.alternatives.size(); ++i) {
    const Cuts& cuts = choices.alternatives[i];
    choices.by_step.push_back(i < choices.num_patterns ? GroupTiles()
                                                       : model_.TilesByStep(shape, cuts));
    if (AreAllOrdered()) {
      choices.tiles.push_back(TileBoxes(shape, cuts, parts_));
      continue;
    }
    GroupBoxes last = TileBoxes(shape, cuts, parts_);
    choices.grids.emplace_back(shape, cuts, parts_);
    choices.volumes.push_back(last.volume);
    choices.tiles.push_back(i < choices.num_patterns
                                ? TileBoxes(shape, Ordered(cuts), parts_)
                                : std::move(last));
  }
  return &tensors_.emplace(key, std::move(choices)).first->second;
}

SearchTables::Splits* SearchTables::SplitsOf(int op_class, const Given& given,
                                             size_t limit) {
  const KindCuts key{split_kinds_[op_class], given};
  const auto found = splits_.find(key);
  if (found != splits_.end()) {
    return found->second.alternatives.size() <= limit ? &found->second : nullptr;
  }
  bool complete = true;
  Splits splits;
  splits.alternatives =
      OperatorCuts(op_class, given, limit, &splits.num_patterns, &complete);
  if (!complete) return nullptr;
  TOFU_CHECK(!splits.alternatives.empty())
      << "operator class " << op_class << " has no way to split";
  if (given.exact != nullptr) {
    splits.profiles = SplitsOf(op_class, given.AllProfiles(), limit);
    if (splits.profiles == nullptr) return nullptr;
    splits.of_profiles = Positions(splits.alternatives, splits.num_patterns,
                                   splits.profiles->alternatives);
  }
  splits.id = static_cast<int>(splits_.size() + following_.size());
  return &splits_.emplace(key, std::move(splits)).first->second;
}

const OperatorChoices* SearchTables::Operator(
    int op_class, const Given& given, const std::vector<const TensorChoices*>& tensors,
    size_t limit) {
  const OpClass& op = coarse_.operators[op_class];
  Splits* splits = nullptr;
  if (!op.elementwise) {
    splits = SplitsOf(op_class, given, limit);
    if (splits == nullptr) return nullptr;
  }
  key_.assign({splits == nullptr ? -1 : splits->id, slot_kinds_[op_class]});
  for (const OpSlot& slot : op.slots) key_.push_back(tensors[slot.tensor_class]->id);
  if (op.elementwise) {
    key_.insert(key_.end(),
                {tensors[op.follows]->id, model_.CountsOperators() ? op_class : 0});
  }
  const auto found = operators_.find(key_);
  if (found != operators_.end()) return &found->second;
  const Key key = key_;
  return &operators_
              .emplace(key, op.elementwise ? MakeElementwise(op_class, tensors)
                                           : MakeChoices(op_class, splits, tensors))
              .first->second;
}

int64_t SearchTables::CellsToFill(const std::vector<Given>& given,
                                  const std::vector<const TensorChoices*>& tensors,
                                  size_t limit, int64_t enough) {
  std::unordered_set<Key, Hash> counted;
  int64_t cells = 0;
  for (size_t p = 0; p < coarse_.operators.size() && cells < enough; ++p) {
    const OpClass& op = coarse_.operators[p];
    if (op.elementwise) continue;
    const Splits* splits = SplitsOf(static_cast<int>(p), given[p], limit);
    if (splits == nullptr) return enough;
    for (const OpSlot& slot : op.slots) {
      const TensorChoices& tensor = *tensors[slot.tensor_class];
      SetSlotKey(slot, *splits, tensor);
      if (matrices_.count(key_) > 0 || !counted.insert(key_).second) continue;
      size_t new_cells = splits->alternatives.size() * tensor.alternatives.size();
      if (ProfileMatrix(slot, *splits, tensor) != nullptr) {
        new_cells -= splits->num_patterns * tensor.num_patterns;
      }
      cells += static_cast<int64_t>(new_cells);
    }
  }
  return cells;
}

OperatorChoices SearchTables::MakeChoices(
    int op_class, Splits* splits, const std::vector<const TensorChoices*>& tensors) {
  const OpClass& op = coarse_.operators[op_class];
  const size_t count = splits->alternatives.size();
  OperatorChoices choices;
  std::vector<Matrix> sums;
  for (size_t i = 0; i < op.slots.size(); ++i) {
    const int tensor = op.slots[i].tensor_class;
    const Matrix& costs = SlotMatrix(op_class, op.slots[i], splits, *tensors[tensor]);
    size_t at = 0;
    while (at < sums.size() && op.slots[choices.slots[at]].tensor_class != tensor) ++at;
    if (at == sums.size()) {
      sums.emplace_back(costs.size(), 0);
      choices.slots.push_back(static_cast<int>(i));
    }
    for (size_t j = 0; j < costs.size(); ++j) {
      sums[at][j] += costs[j] * static_cast<int64_t>(op.nodes.size());
    }
  }
  if (model_.CountsOperators()) {
    if (splits->regions.empty()) MakeRegions(op.nodes[0], splits);
    Matrix& own = sums.emplace_back();
    for (const TimedSplit& split : splits->by_step) {
      own.push_back(model_.OperatorCost(split) * static_cast<int64_t>(op.nodes.size()));
    }
  }
  const std::vector<size_t> kept = Undominated(sums, count);
  for (size_t s : kept) choices.alternatives.push_back(splits->alternatives[s]);
  if (model_.CountsOperators()) {
    choices.own = Rows(sums.back(), count, kept);
    sums.pop_back();
  }
  for (const Matrix& sum : sums) choices.matrices.emplace_back(Rows(sum, count, kept));
  return choices;
}

OperatorChoices SearchTables::MakeElementwise(
    int op_class, const std::vector<const TensorChoices*>& tensors) {
  const OpClass& op = coarse_.operators[op_class];
  const TensorChoices& tensor = *tensors[op.follows];
  OperatorChoices choices;
  choices.alternatives.emplace_back();  // stands for those of its tensors
  choices.slots.push_back(0);
  Matrix costs;
  for (size_t c = 0; c < tensor.alternatives.size(); ++c) {
    costs.push_back(model_.ElementwiseCost(op_class, tensor.alternatives[c],
                                           c < tensor.num_patterns));
  }
  choices.matrices.emplace_back(std::move(costs));
  AddOtherTensors(op_class, tensors, &choices);
  return choices;
}

// The ways to split an operator like the tensor that it follows, in its order.
SearchTables::Splits* SearchTables::SplitsLike(int op_class,
                                               const TensorChoices& tensor) {
  const OpClass& op = coarse_.operators[op_class];
  const std::pair key(op.signature, tensor.id);
  const auto found = following_.find(key);
  if (found != following_.end()) return &found->second;
  Splits splits;
  splits.id = static_cast<int>(splits_.size() + following_.size());
  splits.num_patterns = tensor.num_patterns;
  for (const Cuts& cuts : tensor.alternatives) {
    splits.alternatives.push_back(ElementwiseCuts(*table_.row(op.nodes[0]), cuts));
  }
  return &following_.emplace(key, std::move(splits)).first->second;
}

// Adds the costs of tensors that the class does not follow: an update fetches a weight
// that is cut apart from its state.
void SearchTables::AddOtherTensors(int op_class,
                                   const std::vector<const TensorChoices*>& tensors,
                                   OperatorChoices* choices) {
  const OpClass& op = coarse_.operators[op_class];
  std::map<int, Matrix> sums;  // by tensor class
  for (size_t i = 0; i < op.slots.size(); ++i) {
    const int tensor = op.slots[i].tensor_class;
    if (tensor == op.follows) continue;
    Splits* splits = SplitsLike(op_class, *tensors[op.follows]);
    const Matrix& costs = SlotMatrix(op_class, op.slots[i], splits, *tensors[tensor]);
    const auto [sum, is_new] = sums.try_emplace(tensor, costs.size(), 0);
    if (is_new) choices->slots.push_back(static_cast<int>(i));
    for (size_t j = 0; j < costs.size(); ++j) {
      sum->second[j] += costs[j] * static_cast<int64_t>(op.nodes.size());
    }
  }
  for (size_t i = 1; i < choices->slots.size(); ++i) {
    Matrix& sum = sums.at(op.slots[choices->slots[i]].tensor_class);
    choices->matrices.emplace_back(std::move(sum));
  }
}

void SearchTables::SetSlotKey(const OpSlot& slot, const Splits& splits,
                              const TensorChoices& tensor) {
  key_.assign({splits.id, slot.is_output ? 1 : 0, slot.index, tensor.id,
               model_.MayOverlap(slot) ? 1 : 0});
}

const SearchTables::Matrix* SearchTables::ProfileMatrix(const OpSlot& slot,
                                                        const Splits& splits,
                                                        const TensorChoices& tensor) {
  if (splits.profiles == nullptr || tensor.profiles == nullptr) return nullptr;
  SetSlotKey(slot, *splits.profiles, *tensor.profiles);
  const auto found = matrices_.find(key_);
  return found == matrices_.end() ? nullptr : &found->second;
}

const SearchTables::Matrix& SearchTables::SlotMatrix(int op_class, const OpSlot& slot,
                                                     Splits* splits,
                                                     const TensorChoices& tensor) {
  SetSlotKey(slot, *splits, tensor);
  Matrix& matrix = matrices_[key_];
  if (!matrix.empty()) return matrix;
  const Matrix* known = ProfileMatrix(slot, *splits, tensor);
  const int node = coarse_.operators[op_class].nodes[0];
  if (splits->regions.empty()) MakeRegions(node, splits);
  matrix.reserve(splits->regions.size() * tensor.tiles.size());
  for (size_t split = 0; split < splits->regions.size(); ++split) {
    AddSlotCosts(node, slot, *splits, split, tensor, known, &matrix);
  }
  return matrix;
}

void SearchTables::MakeRegions(int node, Splits* splits) const {
  splits->regions.reserve(splits->alternatives.size());
  const Splits* profiles = splits->profiles;
  const bool are_known = profiles != nullptr && !profiles->regions.empty();
  for (size_t i = 0; i < splits->alternatives.size(); ++i) {
    const Cuts& cuts = splits->alternatives[i];
    const bool is_pattern = i < splits->num_patterns;
    splits->regions.push_back(
        are_known && is_pattern
            ? profiles->regions[splits->of_profiles[i]]
            : std::make_shared<OperatorRegions>(graph_, table_, node, cuts, parts_));
    if (AreSomeOrdered()) {
      splits->first.emplace_back(graph_, table_, node, Ordered(cuts), parts_);
    }
    splits->by_step.push_back(
        is_pattern ? model_.SplitOfPattern(node, *splits->regions.back(), cuts)
                   : model_.SplitByStep(node, cuts));
  }
}

void SearchTables::AddSlotCosts(int node, const OpSlot& slot, const Splits& splits,
                                size_t split, const TensorChoices& tensor,
                                const Matrix* known, Matrix* matrix) const {
  const TimedSplit& by_step = splits.by_step[split];
  const OperatorRegions& all = *splits.regions[split];
  const bool is_pattern = split < splits.num_patterns;
  std::optional<TileOverlap> overlap;
  for (size_t c = 0; c < tensor.alternatives.size(); ++c) {
    if (known != nullptr && is_pattern && c < tensor.num_patterns) {
      const size_t row = splits.of_profiles[split];
      const size_t width = tensor.profiles->alternatives.size();
      matrix->push_back((*known)[row * width + tensor.of_profiles[c]]);
      continue;
    }
    if (!is_pattern && c >= tensor.num_patterns) {
      matrix->push_back(model_.SlotCost(node, slot, {all, by_step},
                                        {tensor.tiles[c], tensor.by_step[c]}));
      continue;
    }
    if (!overlap) overlap.emplace(all.Boxes(slot.is_output, slot.index));
    const int64_t bytes = LeastBytes(node, slot, splits, split, tensor, c, &*overlap);
    matrix->push_back(model_.LeastSlotCost(slot, bytes, by_step));
  }
}

// Bounds the bytes that a slot fetches. After all steps, a box and a tile share at most
// what those after the ordered steps share, and in no dimension more than the sides of
// either; this counts for each group that the other steps make.
int64_t SearchTables::LeastBytes(int node, const OpSlot& slot, const Splits& splits,
                                 size_t split, const TensorChoices& tensor, size_t c,
                                 TileOverlap* overlap) const {
  const OperatorRegions& last = *splits.regions[split];
  const TileGrid& grid = tensor.grids[c];
  int64_t shared = overlap->Most(grid);
  if (AreSomeOrdered()) {
    const GroupBoxes& first = splits.first[split].Boxes(slot.is_output, slot.index);
    Shape most = LongestSides(last.Boxes(slot.is_output, slot.index));
    for (size_t d = 0; d < most.size(); ++d) {
      most[d] = std::min(most[d], grid.side(d).longest());
    }
    int64_t divided = 1;
    for (size_t i = ordered_; i < parts_.size(); ++i) divided *= parts_[i];
    shared = std::min(shared, divided * SumOverlap(first, tensor.tiles[c], most));
  }
  const int64_t bytes = DtypeBytes(graph_.dtype(SlotEntry(graph_, node, slot)));
  StepSet whole = 0;
  int64_t terms = 1;  // of each element of the tensor
  for (size_t i = 0; i < tensor.alternatives[c].size(); ++i) {
    if (tensor.alternatives[c][i] == kReplicated) whole |= StepSet{1} << i;
    if (tensor.alternatives[c][i] == kTerms) terms *= parts_[i];
  }
  if (!slot.is_output) {
    return bytes * last.LeastInputElements(slot.index, terms, shared);
  }
  int64_t elements = last.LeastOutputElements(
      slot.index, grid, {tensor.volumes[c], whole, terms}, shared, overlap);
  if (model_.HasRoutes() && last.Reduces(slot.index) != 0) {
    elements =
        std::min(elements, last.LeastSumElements(slot.index, tensor.volumes[c], whole));
  }
  return bytes * elements;
}

Cuts SearchTables::Ordered(Cuts cuts) const {
  if (ordered_ < cuts.size()) cuts.resize(ordered_);
  return cuts;
}

}  // namespace tofu
