#include "passes/partition/emit_plain.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tofu {
namespace {

// An entry, and the position of its elements in the destination.
struct Held {
  NodeEntry entry;
  Shape begin;
};

bool SameBegin(const Held& a, const Held& b, int dims) {
  return std::equal(a.begin.begin(), a.begin.begin() + dims, b.begin.begin());
}

class PlainEmitter {
 public:
  PlainEmitter(const FetchSpec& spec, const std::vector<NodeEntry>& entries, int dtype,
               const std::string& name, GraphBuilder* builder)
      : spec_(spec), entries_(entries), dtype_(dtype), name_(name), builder_(*builder) {}

  NodeEntry Emit() {
    if (spec_.pieces.empty()) {
      return builder_.Fill(name_ + "/empty", spec_.worker, EmptyExtents(), dtype_, "0");
    }
    std::vector<NodeEntry> terms;
    for (size_t begin = 0; begin < spec_.pieces.size();) {
      size_t end = begin;
      while (end < spec_.pieces.size() &&
             spec_.pieces[end].term == spec_.pieces[begin].term) {
        ++end;
      }
      terms.push_back(EmitTerm(begin, end));
      begin = end;
    }
    TOFU_CHECK(static_cast<int>(terms.size()) == spec_.num_terms)
        << name_ << ": " << terms.size() << " of " << spec_.num_terms << " terms";
    if (terms.size() == 1) return terms[0];
    return builder_.Reduce(name_ + "/reduce", spec_.worker, terms, spec_.reduce);
  }

 private:
  // The pieces from number `begin` to `end`, all of one term.
  NodeEntry EmitTerm(size_t begin, size_t end) {
    std::vector<Held> held;
    for (size_t i = begin; i < end; ++i) {
      held.push_back({EmitPiece(spec_.pieces[i], i), spec_.pieces[i].to.begin});
    }
    if (held.size() == 1) return held[0].entry;
    const std::string prefix =
        spec_.num_terms == 1 ? name_
                             : name_ + "/term" + std::to_string(spec_.pieces[begin].term);
    const int joined = ConcatDtype(dtype_);
    if (joined == dtype_) return Join(prefix, std::move(held));
    CastAll(prefix, joined, &held);
    return builder_.Cast(prefix + "/bool", spec_.worker, Join(prefix, std::move(held)),
                         dtype_);
  }

  NodeEntry EmitPiece(const FetchPiece& piece, size_t number) {
    const std::string suffix = std::to_string(number);
    if (piece.source == kFill) {
      return builder_.Fill(name_ + "/fill" + suffix, spec_.worker, piece.to.Extents(),
                           dtype_, spec_.fill);
    }
    const NodeEntry source = entries_[piece.source];
    if (piece.from == WholeBox(builder_.shape(source))) return source;
    return builder_.Slice(name_ + "/slice" + suffix, piece.source, source, piece.from);
  }

  void CastAll(const std::string& prefix, int dtype, std::vector<Held>* held) {
    for (size_t i = 0; i < held->size(); ++i) {
      (*held)[i].entry = builder_.Cast(prefix + "/uint" + std::to_string(i), spec_.worker,
                                       (*held)[i].entry, dtype);
    }
  }

  // Concatenates along the last dimension first: pieces that start at the same
  // position in the earlier dimensions are adjacent in row-major order.
  NodeEntry Join(const std::string& prefix, std::vector<Held> held) {
    for (int dim = spec_.region.rank() - 1; dim >= 0; --dim) {
      std::vector<Held> joined;
      for (size_t begin = 0; begin < held.size();) {
        size_t end = begin + 1;
        while (end < held.size() && SameBegin(held[begin], held[end], dim)) ++end;
        joined.push_back(JoinRun(prefix, held, begin, end, dim, joined.size()));
        begin = end;
      }
      held = std::move(joined);
    }
    TOFU_CHECK(held.size() == 1) << name_ << ": pieces that do not join";
    return held[0].entry;
  }

  Held JoinRun(const std::string& prefix, const std::vector<Held>& held, size_t begin,
               size_t end, int dim, size_t number) {
    if (end - begin == 1) return held[begin];
    std::vector<NodeEntry> parts;
    for (size_t i = begin; i < end; ++i) parts.push_back(held[i].entry);
    const NodeEntry run = builder_.Concat(
        prefix + "/concat" + std::to_string(dim) + "_" + std::to_string(number),
        spec_.worker, parts, dim);
    return {run, held[begin].begin};
  }

  Shape EmptyExtents() const {
    Shape extents = spec_.region.Extents();
    for (int64_t& extent : extents) extent = std::max<int64_t>(extent, 0);
    return extents;
  }

  const FetchSpec& spec_;
  const std::vector<NodeEntry>& entries_;
  const int dtype_;
  const std::string& name_;
  GraphBuilder& builder_;
};

}  // namespace

NodeEntry EmitPlain(const FetchSpec& spec, const std::vector<NodeEntry>& entries,
                    int dtype, const std::string& name, GraphBuilder* builder) {
  const NodeEntry result = PlainEmitter(spec, entries, dtype, name, builder).Emit();
  if (!spec.pieces.empty()) {
    TOFU_CHECK(builder->shape(result) == spec.region.Extents())
        << name << ": assembled another shape than wanted";
  }
  return result;
}

}  // namespace tofu
