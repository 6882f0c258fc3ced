#include "solver/problem/moments.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tofu {
namespace {

using Segment = ChoiceProblem::Segment;

// Subtracts the least use of each segment from the segment and from the capacity.
void Normalize(ChoiceProblem* core) {
  std::vector<int64_t> taken(core->capacity.size() + 1, 0);
  for (std::vector<Segment>& segments : core->segments) {
    for (Segment& segment : segments) {
      const int64_t least = *std::min_element(segment.bytes.begin(), segment.bytes.end());
      if (least == 0) continue;
      for (int64_t& bytes : segment.bytes) bytes -= least;
      taken[segment.begin] += least;
      taken[segment.end] -= least;
    }
  }
  int64_t now = 0;
  for (size_t t = 0; t < core->capacity.size(); ++t) {
    now += taken[t];
    core->capacity[t] -= now;
    if (core->capacity[t] < 0) core->infeasible = true;
  }
}

// [moment]: whether the largest choices exceed its capacity.
std::vector<char> MayExceed(const ChoiceProblem& core) {
  std::vector<int64_t> most(core.capacity.size() + 1, 0);
  for (const std::vector<Segment>& segments : core.segments) {
    for (const Segment& segment : segments) {
      const int64_t largest =
          *std::max_element(segment.bytes.begin(), segment.bytes.end());
      most[segment.begin] += largest;
      most[segment.end] -= largest;
    }
  }
  std::vector<char> may_exceed(core.capacity.size(), 0);
  int64_t now = 0;
  for (size_t t = 0; t < may_exceed.size(); ++t) {
    now += most[t];
    may_exceed[t] = now > core.capacity[t];
  }
  return may_exceed;
}

// Finds the moments that no neighbouring moment makes redundant.
class Neighbours {
 public:
  explicit Neighbours(const ChoiceProblem& core)
      : core_(core), changing_(core.capacity.size() + 1), seen_(core.domain.size(), -1) {
    for (size_t v = 0; v < core.domain.size(); ++v) {
      for (const Segment& segment : core.segments[v]) {
        changing_[segment.begin].push_back(static_cast<int>(v));
        changing_[segment.end].push_back(static_cast<int>(v));
      }
    }
  }

  std::vector<int> Kept(const std::vector<char>& may_exceed) {
    std::vector<int> pending;  // variables that changed since the last moment kept
    for (size_t t = 0; t < may_exceed.size(); ++t) {
      pending.insert(pending.end(), changing_[t].begin(), changing_[t].end());
      MakeUnique(&pending);
      if (may_exceed[t]) Place(static_cast<int>(t), &pending);
    }
    return std::move(kept_);
  }

 private:
  void MakeUnique(std::vector<int>* variables) {
    ++stamp_;
    const auto is_known = [&](int v) {
      return std::exchange(seen_[v], stamp_) == stamp_;
    };
    variables->erase(std::remove_if(variables->begin(), variables->end(), is_known),
                     variables->end());
  }

  void Place(int t, std::vector<int>* pending) {
    while (!kept_.empty()) {
      const int last = kept_.back();
      const int64_t more = core_.capacity[t] - core_.capacity[last];
      int64_t rise = 0;  // the most that the load can rise from `last` to t
      int64_t fall = 0;
      for (int v : *pending) AddChange(v, last, t, &rise, &fall);
      if (rise <= more) return;  // t adds no restriction
      if (fall > -more) break;
      kept_.pop_back();
      pending->insert(pending->end(), since_.back().begin(), since_.back().end());
      since_.pop_back();
      MakeUnique(pending);
    }
    kept_.push_back(t);
    since_.push_back(std::exchange(*pending, {}));
  }

  const Segment* At(int v, int t) const {
    const std::vector<Segment>& segments = core_.segments[v];
    const auto after =
        std::upper_bound(segments.begin(), segments.end(), t,
                         [](int moment, const Segment& s) { return moment < s.begin; });
    if (after == segments.begin() || (after - 1)->end <= t) return nullptr;
    return &*(after - 1);
  }

  void AddChange(int v, int from, int to, int64_t* rise, int64_t* fall) const {
    const Segment* before = At(v, from);
    const Segment* after = At(v, to);
    if (before == after) return;
    int64_t highest = std::numeric_limits<int64_t>::min();
    int64_t lowest = std::numeric_limits<int64_t>::max();
    for (int x = 0; x < core_.domain[v]; ++x) {
      const int64_t change = (after == nullptr ? 0 : after->bytes[x]) -
                             (before == nullptr ? 0 : before->bytes[x]);
      highest = std::max(highest, change);
      lowest = std::min(lowest, change);
    }
    *rise += highest;
    *fall -= lowest;
  }

  const ChoiceProblem& core_;
  std::vector<std::vector<int>> changing_;  // [moment]: variables that begin or end
  std::vector<int> seen_;                   // [variable]: the stamp that saw it last
  int stamp_ = 0;
  std::vector<int> kept_;
  std::vector<std::vector<int>>
      since_;  // [moment kept]: the variables that changed since the one before
};

bool IsZero(const Segment& segment) {
  return std::all_of(segment.bytes.begin(), segment.bytes.end(),
                     [](int64_t bytes) { return bytes == 0; });
}

void Renumber(const std::vector<int>& kept, ChoiceProblem* core) {
  const auto number = [&](int t) {
    return static_cast<int>(std::lower_bound(kept.begin(), kept.end(), t) - kept.begin());
  };
  for (std::vector<Segment>& segments : core->segments) {
    std::vector<Segment> result;
    for (Segment& segment : segments) {
      segment.begin = number(segment.begin);
      segment.end = number(segment.end);
      if (segment.begin == segment.end || IsZero(segment)) continue;
      if (!result.empty() && result.back().end == segment.begin &&
          result.back().bytes == segment.bytes) {
        result.back().end = segment.end;
      } else {
        result.push_back(std::move(segment));
      }
    }
    segments = std::move(result);
  }
  std::vector<int64_t> capacity;
  for (int t : kept) capacity.push_back(core->capacity[t]);
  core->capacity = std::move(capacity);
}

}  // namespace

std::vector<int> CompressMoments(ChoiceProblem* core) {
  Normalize(core);
  if (core->infeasible) return {};
  std::vector<int> kept = Neighbours(*core).Kept(MayExceed(*core));
  Renumber(kept, core);
  return kept;
}

void MemoryProfile::Add(int v, int64_t begin, int64_t end,
                        const std::vector<int64_t>& bytes) {
  if (v < 0) {
    fixed_[begin] += bytes[0];
    fixed_[end] -= bytes[0];
    return;
  }
  for (const auto& [moment, sign] : {std::pair(begin, 1), std::pair(end, -1)}) {
    std::vector<int64_t>& change = changes_[v][moment];
    change.resize(bytes.size(), 0);
    for (size_t x = 0; x < bytes.size(); ++x) change[x] += sign * bytes[x];
  }
}

std::vector<int64_t> MemoryProfile::Write(int64_t limit, ChoiceProblem* problem) const {
  std::vector<int64_t> moments;
  for (const auto& [moment, change] : fixed_) moments.push_back(moment);
  for (const auto& changes : changes_) {
    for (const auto& [moment, change] : changes) moments.push_back(moment);
  }
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  const auto number = [&](int64_t moment) {
    return static_cast<int>(std::lower_bound(moments.begin(), moments.end(), moment) -
                            moments.begin());
  };
  problem->capacity.assign(moments.size(), limit);
  int64_t now = 0;
  for (size_t t = 0; t < moments.size(); ++t) {
    const auto change = fixed_.find(moments[t]);
    if (change != fixed_.end()) now += change->second;
    problem->capacity[t] -= now;
  }
  problem->segments.assign(changes_.size(), {});
  for (size_t v = 0; v < changes_.size(); ++v) {
    std::vector<int64_t> bytes(domain_[v], 0);
    for (auto it = changes_[v].begin(); it != changes_[v].end(); ++it) {
      for (size_t x = 0; x < bytes.size(); ++x) bytes[x] += it->second[x];
      const auto next = std::next(it);
      if (next == changes_[v].end()) break;  // no use follows
      problem->segments[v].push_back({number(it->first), number(next->first), bytes});
    }
  }
  return moments;
}

}  // namespace tofu
