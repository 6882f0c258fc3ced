#include "passes/search/memory_search.h"

#include <limits>
#include <utility>

namespace tofu {
namespace {

constexpr size_t kMaxSweeps = 4;
constexpr size_t kMaxJointSteps = 2;
constexpr size_t kMaxAlternatives = 128;
constexpr int64_t kMaxCells = int64_t{1} << 20;
constexpr int64_t kMaxNodes = 64;

class MemorySearch {
 public:
  MemorySearch(const ClassCuts& given, const ClassCuts& start,
               const std::vector<int>& parts, const SearchOptions& options,
               PartitionSearcher* searcher)
      : given_(given),
        start_(start),
        parts_(parts),
        options_(options),
        searcher_(searcher) {
    options_.method = SolveBy::kBranch;
    options_.max_nodes = kMaxNodes;
  }

  MemorySearchResult Run() {
    if (parts_.size() <= kMaxJointSteps) DecideTogether();
    const bool is_done = result_.found && result_.found->cost <= result_.lower_bound;
    if (!is_done) Sweep();
    return std::move(result_);
  }

 private:
  void DecideTogether() {
    SearchOptions options = options_;
    options.max_alternatives = kMaxAlternatives;
    options.max_cells = kMaxCells;
    SearchResult found = searcher_->Search(given_, options);
    if (found.status == EliminateStatus::kTooBig) return;
    result_.lower_bound = found.lower_bound;
    Accept(std::move(found));
  }

  void Sweep() {
    ClassCuts cuts = start_;
    int64_t cost = std::numeric_limits<int64_t>::max();
    size_t unchanged = 0;
    for (size_t i = 0; i < kMaxSweeps * parts_.size(); ++i) {
      if (unchanged == parts_.size() || IsPast(options_.eliminate.deadline)) return;
      ++unchanged;
      SearchResult found = searcher_->Search(Freed(cuts, i % parts_.size()), options_);
      if (found.status == EliminateStatus::kTooBig || found.cost >= cost) continue;
      cost = found.cost;
      cuts = found.cuts;
      unchanged = 0;
      Accept(std::move(found));
    }
  }

  void Accept(SearchResult found) {
    if (!result_.found || found.cost < result_.found->cost) {
      result_.found = std::move(found);
    }
  }

  ClassCuts Freed(ClassCuts cuts, size_t step) const {
    for (size_t c = 0; c < cuts.tensors.size(); ++c) {
      cuts.tensors[c][step] = given_.tensors[c][step];
    }
    for (size_t p = 0; p < cuts.operators.size(); ++p) {
      cuts.operators[p][step] = given_.operators[p][step];
    }
    return cuts;
  }

  const ClassCuts& given_;
  const ClassCuts& start_;
  const std::vector<int>& parts_;
  SearchOptions options_;
  PartitionSearcher* const searcher_;
  MemorySearchResult result_;
};

}  // namespace

MemorySearchResult SearchWithinMemory(const ClassCuts& given, const ClassCuts& start,
                                      const std::vector<int>& parts,
                                      const SearchOptions& options,
                                      PartitionSearcher* searcher) {
  return MemorySearch(given, start, parts, options, searcher).Run();
}

}  // namespace tofu
