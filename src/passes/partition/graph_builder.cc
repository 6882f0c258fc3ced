#include "passes/partition/graph_builder.h"

#include <utility>

#include "base/error.h"

namespace tofu {

std::string GraphBuilder::UniqueName(const std::string& base) {
  std::string name = base;
  for (int n = 2; !names_.insert(name).second; ++n) {
    name = base + "#" + std::to_string(n);
  }
  return name;
}

void GraphBuilder::Reserve(int nodes) {
  const auto count = static_cast<size_t>(nodes);
  graph_.nodes.reserve(count);
  graph_.first_entry.reserve(count + 1);
  graph_.shapes.reserve(count);
  graph_.dtypes.reserve(count);
  node_workers_.reserve(count);
  names_.reserve(count);
}

int GraphBuilder::Add(Node node, int worker, const std::vector<Shape>& shapes,
                      const std::vector<int>& dtypes) {
  TOFU_CHECK(static_cast<int>(shapes.size()) == node.num_outputs &&
             shapes.size() == dtypes.size())
      << "node " << node.name << " has " << node.num_outputs << " outputs, but "
      << shapes.size() << " shapes and " << dtypes.size() << " dtypes";
  return Add(std::move(node), worker, shapes.data(), dtypes.data());
}

int GraphBuilder::Add(Node node, int worker, const Shape* shapes, const int* dtypes) {
  const int number = graph_.num_nodes();
  for (NodeEntry input : node.inputs) {
    TOFU_CHECK(input.node >= 0 && input.node < number)
        << "node " << node.name << " reads node " << input.node
        << ", which does not exist yet";
  }
  if (graph_.first_entry.empty()) graph_.first_entry.push_back(0);
  graph_.first_entry.push_back(graph_.first_entry.back() + node.num_outputs);
  graph_.shapes.insert(graph_.shapes.end(), shapes, shapes + node.num_outputs);
  graph_.dtypes.insert(graph_.dtypes.end(), dtypes, dtypes + node.num_outputs);
  if (!names_.insert(node.name).second) node.name = UniqueName(node.name);
  while (static_cast<int>(groups_.size()) <= worker) {
    groups_.push_back(WorkerGroup(static_cast<int>(groups_.size())));
  }
  node.group = groups_[worker];
  graph_.nodes.push_back(std::move(node));
  node_workers_.push_back(worker);
  return number;
}

NodeEntry GraphBuilder::AddOne(Node node, const std::string& name, int worker,
                               std::vector<NodeEntry> inputs, const Shape& shape,
                               int dtype) {
  node.name = name;
  node.inputs = std::move(inputs);
  return {Add(std::move(node), worker, {shape}, {dtype}), 0};
}

NodeEntry GraphBuilder::Slice(const std::string& name, int worker, NodeEntry source,
                              const Box& box) {
  TOFU_CHECK(Contains(WholeBox(shape(source)), box))
      << name << ": a slice reaches outside its source";
  if (!SlicesByAxis(dtype(source))) {
    return AddOne(SliceNode(box), name, worker, {source}, box.Extents(), dtype(source));
  }
  NodeEntry sliced = source;
  for (int dim = 0; dim < box.rank(); ++dim) {
    Shape extents = shape(sliced);
    const int64_t extent = box.end[dim] - box.begin[dim];
    if (extent == extents[dim]) continue;
    extents[dim] = extent;
    sliced = AddOne(SliceAxisNode(dim, box.begin[dim], box.end[dim]), name, worker,
                    {sliced}, extents, dtype(source));
  }
  return sliced;
}

NodeEntry GraphBuilder::Concat(const std::string& name, int worker,
                               const std::vector<NodeEntry>& parts, int dim) {
  TOFU_CHECK(!parts.empty()) << name << ": nothing to concatenate";
  Shape whole = shape(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) {
    Shape part = shape(parts[i]);
    whole[dim] += part[dim];
    part[dim] = whole[dim];
    TOFU_CHECK(part == whole && dtype(parts[i]) == dtype(parts[0]))
        << name << ": part " << i << " does not fit the others";
  }
  return AddOne(ConcatNode(dim, parts.size()), name, worker, parts, whole,
                dtype(parts[0]));
}

NodeEntry GraphBuilder::Fill(const std::string& name, int worker, const Shape& shape,
                             int dtype, const std::string& value) {
  return AddOne(FillNode(shape, dtype, value), name, worker, {}, shape, dtype);
}

NodeEntry GraphBuilder::Copy(const std::string& name, int worker, NodeEntry source) {
  const Shape source_shape = shape(source);
  return AddOne(CopyNode(), name, worker, {source}, source_shape, dtype(source));
}

NodeEntry GraphBuilder::PlainCopy(const std::string& name, int worker, NodeEntry source) {
  const Shape source_shape = shape(source);
  return AddOne(PlainCopyNode(), name, worker, {source}, source_shape, dtype(source));
}

NodeEntry GraphBuilder::Cast(const std::string& name, int worker, NodeEntry source,
                             int dtype) {
  const Shape source_shape = shape(source);
  return AddOne(CastNode(dtype), name, worker, {source}, source_shape, dtype);
}

NodeEntry GraphBuilder::Reduce(const std::string& name, int worker,
                               const std::vector<NodeEntry>& terms, Reducer reduce) {
  TOFU_CHECK(terms.size() > 1) << name << ": nothing to reduce";
  for (NodeEntry term : terms) {
    TOFU_CHECK(shape(term) == shape(terms[0]) && dtype(term) == dtype(terms[0]))
        << name << ": the terms differ in shape or dtype";
  }
  const Shape term_shape = shape(terms[0]);
  const int term_dtype = dtype(terms[0]);
  if (reduce == Reducer::kSum) {
    return AddOne(SumNode(terms.size()), name, worker, terms, term_shape, term_dtype);
  }
  if (reduce == Reducer::kLogSumExp) return LogSumExp(name, worker, terms);
  NodeEntry sum = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    const std::string step = i + 1 < terms.size() ? name + "/" + std::to_string(i) : name;
    sum = AddOne(CombineNode(reduce), step, worker, {sum, terms[i]}, term_shape,
                 term_dtype);
  }
  return sum;
}

// max + log(sum of exp(term - max)), where the power of the largest term is 1: the
// difference of two infinite numbers is none.
NodeEntry GraphBuilder::LogSumExp(const std::string& name, int worker,
                                  const std::vector<NodeEntry>& terms) {
  const Shape term_shape = shape(terms[0]);
  const int term_dtype = dtype(terms[0]);
  const auto add = [&](const Node& node, const std::string& part,
                       const std::vector<NodeEntry>& inputs) {
    return AddOne(node, name + part, worker, inputs, term_shape, term_dtype);
  };
  const NodeEntry largest = Reduce(name + "/max", worker, terms, Reducer::kMax);
  const NodeEntry ones = add(OnesLikeNode(), "/ones", {largest});
  std::vector<NodeEntry> powers;
  for (size_t i = 0; i < terms.size(); ++i) {
    const std::string number = std::to_string(i);
    const NodeEntry less = add(DifferenceNode(), "/less" + number, {terms[i], largest});
    const NodeEntry power = add(ExpNode(), "/exp" + number, {less});
    const NodeEntry equal = add(EqualNode(), "/equal" + number, {terms[i], largest});
    powers.push_back(add(WhereNode(), "/power" + number, {equal, ones, power}));
  }
  const NodeEntry logarithm =
      add(LogNode(), "/log", {Reduce(name + "/sum", worker, powers, Reducer::kSum)});
  return add(SumNode(2), "", {largest, logarithm});
}

}  // namespace tofu
