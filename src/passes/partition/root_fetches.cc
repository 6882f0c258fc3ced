#include "passes/partition/root_fetches.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tofu {
namespace {

bool IsRemote(const FetchSpec& spec, const FetchPiece& piece) {
  return piece.source != kFill && piece.source != spec.worker;
}

int RemotePieces(const FetchSpec& spec) {
  return static_cast<int>(
      std::count_if(spec.pieces.begin(), spec.pieces.end(),
                    [&](const FetchPiece& piece) { return IsRemote(spec, piece); }));
}

bool HasFill(const FetchSpec& spec) {
  return std::any_of(spec.pieces.begin(), spec.pieces.end(),
                     [](const FetchPiece& piece) { return piece.source == kFill; });
}

Box Hull(const Box& a, const Box& b) {
  Box hull = a;
  for (int d = 0; d < a.rank(); ++d) {
    hull.begin[d] = std::min(a.begin[d], b.begin[d]);
    hull.end[d] = std::max(a.end[d], b.end[d]);
  }
  return hull;
}

// Groups of workers that fetches connect.
class WorkerGroups {
 public:
  explicit WorkerGroups(const std::vector<FetchSpec>& specs) {
    for (const FetchSpec& spec : specs) {
      for (const FetchPiece& piece : spec.pieces) {
        if (IsRemote(spec, piece)) Join(spec.worker, piece.source);
      }
    }
  }

  int GroupOf(int worker) {
    Extend(worker);
    while (parent_[worker] != worker) worker = parent_[worker] = parent_[parent_[worker]];
    return worker;
  }

  std::vector<int> Members(int group) {
    std::vector<int> members;
    for (size_t w = 0; w < parent_.size(); ++w) {
      if (GroupOf(static_cast<int>(w)) == group) members.push_back(static_cast<int>(w));
    }
    return members;
  }

 private:
  void Extend(int worker) {
    while (static_cast<int>(parent_.size()) <= worker) {
      parent_.push_back(static_cast<int>(parent_.size()));
    }
  }

  void Join(int a, int b) {
    const int root = GroupOf(a);
    parent_[GroupOf(b)] = root;
  }

  std::vector<int> parent_;
};

// The readers' fetches if one worker assembles `box`.
std::vector<FetchSpec> FromRoot(const std::vector<const FetchSpec*>& readers, int root,
                                const Box& box) {
  std::vector<FetchSpec> regions;
  for (const FetchSpec* reader : readers) {
    regions.push_back(PlanFetch(reader->worker, reader->region, box, {{root, box}}));
  }
  return regions;
}

}  // namespace

std::vector<RootFetches> PlanRootFetches(const std::vector<FetchSpec>& specs,
                                         const FetchPlanner& planner,
                                         int64_t element_bytes, int64_t max_bytes,
                                         int turn) {
  WorkerGroups groups(specs);
  std::map<int, std::vector<const FetchSpec*>> readers;
  for (const FetchSpec& spec : specs) {
    if (RemotePieces(spec) > 0) readers[groups.GroupOf(spec.worker)].push_back(&spec);
  }
  std::vector<RootFetches> plans;
  for (const auto& [group, specs_of_group] : readers) {
    Box box = specs_of_group[0]->region;
    int copies = 0;
    bool has_fill = false;
    for (const FetchSpec* spec : specs_of_group) {
      box = Hull(box, spec->region);
      copies += RemotePieces(*spec);
      has_fill = has_fill || HasFill(*spec);
    }
    // Another worker reads each region, unless it is the root.
    const int regions = static_cast<int>(specs_of_group.size()) - 1;
    if (has_fill || copies <= regions || box.Volume() * element_bytes > max_bytes) {
      continue;
    }
    const std::vector<int> members = groups.Members(group);
    const int root = members[turn % members.size()];
    RootFetches through{planner(root, box), FromRoot(specs_of_group, root, box)};
    int fewer = RemotePieces(through.collect);
    for (const FetchSpec& spec : through.regions) fewer += RemotePieces(spec);
    if (fewer < copies) plans.push_back(std::move(through));
  }
  return plans;
}

}  // namespace tofu
