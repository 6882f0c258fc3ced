#include "solver/problem/read_problem.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "solver/problem/moments.h"

namespace tofu {
namespace {

constexpr const char* kFormat = "tofu-step-problem";
constexpr int kMaxVersion = 2;
constexpr int kMaxDomain = 1 << 20;
constexpr int64_t kMaxBytes = kUnlimited - 1;
constexpr int64_t kMaxMoment = int64_t{1} << 40;

// Reads lists of numbers; equal lists share their cells.
class CellReader {
 public:
  // Reads numbers >= 0; those above `highest` count as `highest`.
  SharedCells Read(const JsonCursor& cursor, int64_t expected, int64_t highest) {
    const int size = cursor.Size();
    if (size != expected) cursor.Fail("an array of " + std::to_string(expected));
    std::vector<int64_t> cells(static_cast<size_t>(size));
    uint64_t hash = static_cast<uint64_t>(size);
    for (int i = 0; i < size; ++i) {
      cells[i] = Number(cursor, i, highest);
      hash = (hash ^ static_cast<uint64_t>(cells[i])) * 0xff51afd7ed558ccdULL;
      hash ^= hash >> 29;
    }
    const auto [begin, end] = known_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      if (it->second.vector() == cells) return it->second;
    }
    return known_.emplace(hash, SharedCells(std::move(cells)))->second;
  }

 private:
  static int64_t Number(const JsonCursor& cursor, int i, int64_t highest) {
    const JsonValue& value = cursor.value().items[i];
    // Numbers beyond the range of int64 count as the highest.
    if (value.is(JsonValue::Kind::kUnsigned)) return highest;
    if (value.is(JsonValue::Kind::kFloat) && value.number >= 0x1p63) return highest;
    if (!value.is(JsonValue::Kind::kInt) || value.integer < 0) {
      cursor.At(i).Fail("an integer from 0 up");
    }
    return std::min(value.integer, highest);
  }

  std::unordered_multimap<uint64_t, SharedCells> known_;
};

// Sets the memory of the problem, and the moments' numbers in the text.
void ReadMemory(const JsonCursor& memory, CellReader* reader, ProblemText* read) {
  const std::vector<int>& domain = read->problem.domain;
  const int64_t limit = memory.At("limit").Int(0, kMaxBytes);
  const JsonCursor uses = memory.At("uses");
  MemoryProfile profile(domain);
  int64_t most = 0;
  for (int i = 0; i < uses.Size(); ++i) {
    const JsonCursor use = uses.At(i);
    if (use.Size() != 4) use.Fail("a variable, a begin, an end and the bytes");
    const int v = use.At(0).Index(static_cast<int>(domain.size()));
    const int64_t begin = use.At(1).Int(-kMaxMoment, kMaxMoment);
    const int64_t end = use.At(2).Int(-kMaxMoment, kMaxMoment);
    const SharedCells bytes = reader->Read(use.At(3), domain[v], kMaxBytes);
    if (begin >= end) continue;
    const int64_t largest = *std::max_element(bytes.begin(), bytes.end());
    if (largest > kMaxBytes - most) {
      use.Fail("uses of all variables that add up to less than 2^62");
    }
    most += largest;
    profile.Add(v, begin, end, bytes.vector());
  }
  read->moments = profile.Write(limit, &read->problem);
}

}  // namespace

ProblemText ReadProblem(const std::string& text) {
  const JsonDocument document =
      ParseJson(text, Blame::kPlan, "problem", "see \"Step problem\" in docs/formats.md");
  const JsonCursor root(document);
  if (root.At("format").String() != kFormat) {
    root.At("format").Fail('"' + std::string(kFormat) + '"');
  }
  const int64_t version = root.At("version").Int(1, kMaxVersion);
  ProblemText read;
  ChoiceProblem& problem = read.problem;
  CellReader reader;
  problem.constant = root.At("constant").Int(0, kForbidden);
  const JsonCursor domains = root.At("domains");
  const int count = domains.Size();
  for (int v = 0; v < count; ++v) {
    problem.AddVariable(static_cast<int>(domains.At(v).Int(1, kMaxDomain)));
  }
  const std::vector<int>& domain = problem.domain;
  const JsonCursor unary = root.At("unary");
  if (unary.Size() != count) {
    unary.Fail("an array of " + std::to_string(count) + ", one a variable");
  }
  for (int v = 0; v < count; ++v) {
    if (unary.At(v).Size() == 0) continue;
    problem.unary[v] = reader.Read(unary.At(v), domain[v], kForbidden).vector();
  }
  const JsonCursor pairs = root.At("pairs");
  for (int i = 0; i < pairs.Size(); ++i) {
    const JsonCursor pair = pairs.At(i);
    if (pair.Size() != 3) pair.Fail("two variables and their cells");
    const int a = pair.At(0).Index(count);
    const int b = pair.At(1).Index(count);
    if (a == b) pair.At(1).Fail("another variable than the pair's first");
    problem.pairs.push_back(
        {a, b, reader.Read(pair.At(2), int64_t{domain[a]} * domain[b], kForbidden)});
  }
  if (version > 1 && root.Has("memory")) {
    ReadMemory(root.At("memory"), &reader, &read);
  }
  return read;
}

}  // namespace tofu
