#include "passes/partition/graph_builder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace tofu {
namespace {

constexpr int kFloat32 = 0;

// By MXNet's type flag.
constexpr std::array<const char*, 13> kDtypeNames = {
    "float32", "float64", "float16", "uint8",  "int32",  "int8",    "int64",
    "bool",    "int16",   "uint16",  "uint32", "uint64", "bfloat16"};

const char* ChainOp(Reducer reduce) {
  switch (reduce) {
    case Reducer::kMax:
      return "_maximum";
    case Reducer::kMin:
      return "_minimum";
    case Reducer::kProd:
      return "elemwise_mul";
    case Reducer::kSum:
      break;
  }
  return "add_n";
}

}  // namespace

std::string WorkerContext(int worker) { return "worker" + std::to_string(worker); }

std::string TupleText(const std::vector<int64_t>& values) {
  std::string text = "(";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(values[i]);
  }
  return text + (values.size() == 1 ? ",)" : ")");
}

std::string DtypeName(int dtype) {
  TOFU_CHECK_USER(dtype >= 0 && dtype < static_cast<int>(kDtypeNames.size()),
                  Blame::kGraph)
      << "dtype " << dtype << " is no type flag of MXNet, expected 0 to "
      << kDtypeNames.size() - 1;
  return kDtypeNames[dtype];
}

std::string GraphBuilder::UniqueName(const std::string& wanted) {
  std::string name = wanted;
  for (int n = 2; !names_.insert(name).second; ++n) {
    name = wanted + "#" + std::to_string(n);
  }
  return name;
}

int GraphBuilder::Add(Node node, int worker, const std::vector<Shape>& shapes,
                      const std::vector<int>& dtypes) {
  TOFU_CHECK(static_cast<int>(shapes.size()) == node.num_outputs &&
             shapes.size() == dtypes.size())
      << "node " << node.name << " has " << node.num_outputs << " outputs, but "
      << shapes.size() << " shapes and " << dtypes.size() << " dtypes";
  const int number = graph_.num_nodes();
  for (NodeEntry input : node.inputs) {
    TOFU_CHECK(input.node >= 0 && input.node < number)
        << "node " << node.name << " reads node " << input.node
        << ", which is not there yet";
  }
  if (graph_.first_entry.empty()) graph_.first_entry.push_back(0);
  graph_.first_entry.push_back(graph_.first_entry.back() + node.num_outputs);
  graph_.shapes.insert(graph_.shapes.end(), shapes.begin(), shapes.end());
  graph_.dtypes.insert(graph_.dtypes.end(), dtypes.begin(), dtypes.end());
  node.name = UniqueName(node.name);
  node.attrs[kContextAttr] = WorkerContext(worker);
  graph_.nodes.push_back(std::move(node));
  node_workers_.push_back(worker);
  return number;
}

NodeEntry GraphBuilder::AddOne(const std::string& op, const std::string& name, int worker,
                               std::map<std::string, std::string> attrs,
                               std::vector<NodeEntry> inputs, const Shape& shape,
                               int dtype) {
  Node node;
  node.op = op;
  node.name = name;
  node.attrs = std::move(attrs);
  node.inputs = std::move(inputs);
  return {Add(std::move(node), worker, {shape}, {dtype}), 0};
}

NodeEntry GraphBuilder::Slice(const std::string& name, int worker, NodeEntry source,
                              const Box& box) {
  TOFU_CHECK(Contains(WholeBox(shape(source)), box))
      << name << ": a slice reaches outside its source";
  if (dtype(source) != kFloat32) {
    return AddOne("slice", name, worker,
                  {{"begin", TupleText(box.begin)}, {"end", TupleText(box.end)}},
                  {source}, box.Extents(), dtype(source));
  }
  // On CPUs "slice" of float32 is oneDNN's, which divides by zero if a piece cuts
  // through the blocks of a blocked layout, such as a convolution's. "slice_axis"
  // always reads the plain layout.
  NodeEntry sliced = source;
  for (int dim = 0; dim < box.rank(); ++dim) {
    Shape extents = shape(sliced);
    const int64_t extent = box.end[dim] - box.begin[dim];
    if (extent == extents[dim]) continue;
    extents[dim] = extent;
    sliced = AddOne("slice_axis", name, worker,
                    {{"axis", std::to_string(dim)},
                     {"begin", std::to_string(box.begin[dim])},
                     {"end", std::to_string(box.end[dim])}},
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
  return AddOne(
      "Concat", name, worker,
      {{"dim", std::to_string(dim)}, {"num_args", std::to_string(parts.size())}}, parts,
      whole, dtype(parts[0]));
}

NodeEntry GraphBuilder::Fill(const std::string& name, int worker, const Shape& shape,
                             int dtype, const std::string& value) {
  std::map<std::string, std::string> attrs = {{"shape", TupleText(shape)},
                                              {"dtype", DtypeName(dtype)}};
  if (value == "0") {
    return AddOne("_zeros", name, worker, std::move(attrs), {}, shape, dtype);
  }
  attrs["value"] = value;
  return AddOne("_full", name, worker, std::move(attrs), {}, shape, dtype);
}

NodeEntry GraphBuilder::Copy(const std::string& name, int worker, NodeEntry source) {
  const Shape source_shape = shape(source);
  return AddOne("_copy", name, worker, {}, {source}, source_shape, dtype(source));
}

NodeEntry GraphBuilder::Cast(const std::string& name, int worker, NodeEntry source,
                             int dtype) {
  const Shape source_shape = shape(source);
  return AddOne("Cast", name, worker, {{"dtype", DtypeName(dtype)}}, {source},
                source_shape, dtype);
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
    return AddOne(ChainOp(reduce), name, worker,
                  {{"num_args", std::to_string(terms.size())}}, terms, term_shape,
                  term_dtype);
  }
  NodeEntry sum = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    const std::string step = i + 1 < terms.size() ? name + "/" + std::to_string(i) : name;
    sum = AddOne(ChainOp(reduce), step, worker, {}, {sum, terms[i]}, term_shape,
                 term_dtype);
  }
  return sum;
}

}  // namespace tofu
