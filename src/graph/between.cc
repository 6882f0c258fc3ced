#include "graph/between.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tofu {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

size_t DigitsEnd(std::string_view text, size_t begin) {
  while (begin < text.size() && IsDigit(text[begin])) ++begin;
  return begin;
}

// The number in `text`; nothing if it is too large or begins with a zero, as the digits
// behind a decimal point may.
std::optional<int64_t> WholeNumber(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  const bool padded = text.size() > 1 && text.front() == '0';
  if (error != std::errc() || end != text.data() + text.size() || padded) return {};
  return value;
}

class Line {
 public:
  Line(int64_t size_a, int64_t size_b, int64_t size)
      : step_(size_b - size_a), distance_(size - size_a) {
    TOFU_CHECK(step_ != 0) << "two graphs of size " << size_a << " give no line";
  }

  // The value at `size` of what is `a` and `b` at their sizes.
  std::optional<int64_t> At(int64_t a, int64_t b) const {
    int64_t rise = 0, value = 0;
    if (__builtin_mul_overflow(b - a, distance_, &rise) || rise % step_ != 0) return {};
    if (__builtin_add_overflow(a, rise / step_, &value) || value < 0) return {};
    return value;
  }

  // The same for every whole number in two texts that differ in nothing else.
  std::optional<std::string> At(std::string_view a, std::string_view b) const {
    if (a == b) return std::string(a);
    std::string text;
    size_t i = 0, j = 0;
    while (i < a.size() && j < b.size()) {
      if (!IsDigit(a[i]) || !IsDigit(b[j])) {
        if (a[i] != b[j]) return {};
        text += a[i++];
        ++j;
        continue;
      }
      const std::string_view in_a = a.substr(i, DigitsEnd(a, i) - i);
      const std::string_view in_b = b.substr(j, DigitsEnd(b, j) - j);
      i += in_a.size();
      j += in_b.size();
      if (in_a == in_b) {
        text += in_a;
        continue;
      }
      const bool is_fraction = !text.empty() && text.back() == '.';
      const std::optional<int64_t> from = WholeNumber(in_a), to = WholeNumber(in_b);
      if (is_fraction || !from || !to) return {};
      const std::optional<int64_t> value = At(*from, *to);
      if (!value) return {};
      text += std::to_string(*value);
    }
    if (i < a.size() || j < b.size()) return {};
    return text;
  }

 private:
  int64_t step_;
  int64_t distance_;
};

bool SameEntries(const std::vector<NodeEntry>& a, const std::vector<NodeEntry>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](NodeEntry x, NodeEntry y) {
    return x.node == y.node && x.index == y.index;
  });
}

bool SameStructure(const Graph& a, const Graph& b) {
  const auto same_node = [](const Node& x, const Node& y) {
    return x.op == y.op && x.name == y.name && x.group == y.group &&
           x.num_outputs == y.num_outputs && x.runs_once == y.runs_once &&
           x.control_deps == y.control_deps && SameEntries(x.inputs, y.inputs);
  };
  return std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(),
                    same_node) &&
         SameEntries(a.heads, b.heads) && a.head_roles == b.head_roles &&
         a.dtypes == b.dtypes;
}

// Moves `attrs`, those of `a`, along the line to those of `b`; whether that is possible.
bool MoveAttrs(const Line& line, const Attrs& b, Attrs* attrs) {
  if (*attrs == b) return true;
  Attrs::Map moved;
  if (attrs->size() != b.size()) return false;
  for (auto x = attrs->begin(), y = b.begin(); x != attrs->end(); ++x, ++y) {
    if (x->first != y->first) return false;
    std::optional<std::string> text = line.At(x->second, y->second);
    if (!text) return false;
    moved.emplace_hint(moved.end(), x->first, *std::move(text));
  }
  *attrs = std::move(moved);
  return true;
}

bool MoveShape(const Line& line, const Shape& b, Shape* shape) {
  if (shape->size() != b.size()) return false;
  int64_t elements = 1;
  for (size_t d = 0; d < b.size(); ++d) {
    const std::optional<int64_t> extent = line.At((*shape)[d], b[d]);
    if (!extent || *extent < 1 || elements > kMaxElements / *extent) return false;
    elements *= *extent;
    (*shape)[d] = *extent;
  }
  return true;
}

}  // namespace

std::optional<Graph> GraphAt(const SizedGraph& a, const SizedGraph& b, int64_t size) {
  if (!SameStructure(a.graph, b.graph)) return {};
  const Line line(a.size, b.size, size);
  Graph graph = a.graph;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (!MoveAttrs(line, b.graph.nodes[node].attrs, &graph.nodes[node].attrs)) return {};
  }
  for (int entry = 0; entry < graph.num_entries(); ++entry) {
    if (!MoveShape(line, b.graph.shapes[entry], &graph.shapes[entry])) return {};
  }
  return graph;
}

}  // namespace tofu
