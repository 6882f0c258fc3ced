#include "support/interpreter.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "fetch/fetch_bundle.h"
#include "kernels/multifetch.h"

namespace tofu {
namespace {

using Inputs = std::vector<const Array*>;
using Kernel = std::function<std::vector<Array>(const Node&, const Inputs&)>;
using Binary = std::function<double(double, double)>;

double Add(double a, double b) { return a + b; }
double Mul(double a, double b) { return a * b; }
double Max(double a, double b) { return std::max(a, b); }
double Min(double a, double b) { return std::min(a, b); }

size_t Offset(const Array& array, const Shape& index) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) offset = offset * array.shape[d] + index[d];
  return static_cast<size_t>(offset);
}

int64_t IntAttr(const Node& node, const std::string& name) {
  return std::stoll(node.attrs.at(name));
}

// Reads "(1, 2)" or "(1,)".
Shape TupleAttr(const Node& node, const std::string& name) {
  std::string text = node.attrs.at(name);
  for (char& c : text) {
    if (c == '(' || c == ')' || c == ',') c = ' ';
  }
  std::istringstream stream(text);
  Shape values;
  for (int64_t value = 0; stream >> value;) values.push_back(value);
  return values;
}

Kernel Elementwise(const Binary& combine) {
  return [combine](const Node&, const Inputs& in) {
    Array out = *in[0];
    for (size_t k = 1; k < in.size(); ++k) {
      if (in[k]->shape != out.shape) throw std::runtime_error("shapes differ");
      for (size_t i = 0; i < out.data.size(); ++i) {
        out.data[i] = combine(out.data[i], in[k]->data[i]);
      }
    }
    return std::vector<Array>{out};
  };
}

Array ReduceAxis(const Array& in, int64_t axis, double start, const Binary& combine) {
  Shape shape = in.shape;
  shape.erase(shape.begin() + axis);
  Array out(shape);
  std::fill(out.data.begin(), out.data.end(), start);
  ForEachIndex(WholeBox(in.shape), [&](const Shape& index) {
    Shape to = index;
    to.erase(to.begin() + axis);
    out.at(to) = combine(out.at(to), in.at(index));
  });
  return out;
}

Kernel Reduction(double start, const Binary& combine) {
  return [start, combine](const Node& node, const Inputs& in) {
    return std::vector<Array>{ReduceAxis(*in[0], IntAttr(node, "axis"), start, combine)};
  };
}

// The sum and the maximum over the rows, and a copy of the input (a hidden output).
std::vector<Array> Moments(const Node&, const Inputs& in) {
  const double lowest = -std::numeric_limits<double>::infinity();
  return {ReduceAxis(*in[0], 0, 0, Add), ReduceAxis(*in[0], 0, lowest, Max), *in[0]};
}

// x (b, i), w (o, i), bias (o); num_hidden must be o.
std::vector<Array> FullyConnected(const Node& node, const Inputs& in) {
  const int64_t hidden = IntAttr(node, "num_hidden");
  if (hidden != in[1]->shape[0]) throw std::runtime_error("num_hidden is wrong");
  if (in[1]->shape[1] != in[0]->shape[1]) throw std::runtime_error("x does not fit w");
  Array out({in[0]->shape[0], hidden});
  ForEachIndex(WholeBox(out.shape), [&](const Shape& at) {
    double sum = in[2]->at({at[1]});
    for (int64_t i = 0; i < in[0]->shape[1]; ++i) {
      sum += in[0]->at({at[0], i}) * in[1]->at({at[1], i});
    }
    out.at(at) = sum;
  });
  return {out};
}

int64_t WindowCount(int64_t extent, int64_t window, int64_t stride, int64_t pad) {
  return (extent + 2 * pad - window) / stride + 1;
}

// data (b, ci, x), filters (co, ci, dx); stride and pad.
std::vector<Array> Conv1d(const Node& node, const Inputs& in) {
  const int64_t stride = IntAttr(node, "stride");
  const int64_t pad = IntAttr(node, "pad");
  const Shape& data = in[0]->shape;
  const Shape& filters = in[1]->shape;
  if (data[1] != filters[1]) throw std::runtime_error("channels differ");
  Array out({data[0], filters[0], WindowCount(data[2], filters[2], stride, pad)});
  ForEachIndex(WholeBox(out.shape), [&](const Shape& at) {
    double sum = 0;
    ForEachIndex(WholeBox({filters[1], filters[2]}), [&](const Shape& k) {
      const int64_t x = at[2] * stride + k[1] - pad;
      if (x < 0 || x >= data[2]) return;
      sum += in[0]->at({at[0], k[0], x}) * in[1]->at({at[1], k[0], k[1]});
    });
    out.at(at) = sum;
  });
  return {out};
}

// data (b, c, x); window, stride and pad; padding is never the maximum.
std::vector<Array> MaxPool1d(const Node& node, const Inputs& in) {
  const int64_t window = IntAttr(node, "window");
  const int64_t stride = IntAttr(node, "stride");
  const int64_t pad = IntAttr(node, "pad");
  const Shape& data = in[0]->shape;
  Array out({data[0], data[1], WindowCount(data[2], window, stride, pad)});
  ForEachIndex(WholeBox(out.shape), [&](const Shape& at) {
    double best = -std::numeric_limits<double>::infinity();
    for (int64_t k = 0; k < window; ++k) {
      const int64_t x = at[2] * stride + k - pad;
      if (x >= 0 && x < data[2]) best = std::max(best, in[0]->at({at[0], at[1], x}));
    }
    out.at(at) = best;
  });
  return {out};
}

// (n) repeated to (m, n), the attribute `shape`.
std::vector<Array> BroadcastRows(const Node& node, const Inputs& in) {
  Array out(TupleAttr(node, "shape"));
  if (out.shape[1] != in[0]->shape[0]) throw std::runtime_error("shape is wrong");
  ForEachIndex(WholeBox(out.shape),
               [&](const Shape& at) { out.at(at) = in[0]->at({at[1]}); });
  return {out};
}

std::vector<Array> Flatten(const Node&, const Inputs& in) {
  Array out = *in[0];
  out.shape = {NumElements(in[0]->shape)};
  return {out};
}

// The elements of (n) after the first `begin`.
std::vector<Array> SecondHalf(const Node& node, const Inputs& in) {
  const int64_t begin = IntAttr(node, "begin");
  return {Crop(*in[0], {{begin}, {in[0]->shape[0]}})};
}

std::vector<Array> Reverse(const Node&, const Inputs& in) {
  Array out = *in[0];
  std::reverse(out.data.begin(), out.data.end());
  return {out};
}

std::vector<Array> Slice(const Node& node, const Inputs& in) {
  return {Crop(*in[0], {TupleAttr(node, "begin"), TupleAttr(node, "end")})};
}

std::vector<Array> SliceAxis(const Node& node, const Inputs& in) {
  const int64_t axis = IntAttr(node, "axis");
  Box box = WholeBox(in[0]->shape);
  box.begin[axis] = IntAttr(node, "begin");
  box.end[axis] = IntAttr(node, "end");
  return {Crop(*in[0], box)};
}

std::vector<Array> Concat(const Node& node, const Inputs& in) {
  if (IntAttr(node, "num_args") != static_cast<int64_t>(in.size())) {
    throw std::runtime_error("num_args is wrong");
  }
  const int64_t dim = IntAttr(node, "dim");
  Shape shape = in[0]->shape;
  shape[dim] = 0;
  for (const Array* part : in) shape[dim] += part->shape[dim];
  Array out(shape);
  int64_t begin = 0;
  for (const Array* part : in) {
    ForEachIndex(WholeBox(part->shape), [&](const Shape& index) {
      Shape to = index;
      to[dim] += begin;
      out.at(to) = part->at(index);
    });
    begin += part->shape[dim];
  }
  return {out};
}

std::vector<Array> Fill(const Node& node, const Inputs&) {
  Array out(TupleAttr(node, "shape"));
  const auto value = node.attrs.find("value");
  if (value != node.attrs.end()) {
    std::fill(out.data.begin(), out.data.end(), std::stod(value->second));
  }
  return {out};
}

std::vector<Array> Fetch(const Node& node, const Inputs& in) {
  constexpr int kFloat64 = 1;  // the dtype of all arrays here
  std::vector<Array> outputs;
  auto tile = in.begin();
  for (MultiFetchSpec& spec : ReadBundle(node.attrs.at("spec"))) {
    spec.dtype = kFloat64;
    std::vector<const void*> sources;
    while (sources.size() < spec.sources.size()) {
      sources.push_back((*tile++)->data.data());
    }
    Array& region = outputs.emplace_back(spec.shape);
    MultiFetch(spec).Run(sources.data(), region.data.data());
  }
  return outputs;
}

const std::map<std::string, Kernel>& Kernels() {
  static const auto* const kKernels = new std::map<std::string, Kernel>{
      {"add", Elementwise(Add)},
      {"mul", Elementwise(Mul)},
      {"noise", Elementwise(Add)},
      {"sum_axis", Reduction(0, Add)},
      {"prod_axis", Reduction(1, Mul)},
      {"max_axis", Reduction(-std::numeric_limits<double>::infinity(), Max)},
      {"min_axis", Reduction(std::numeric_limits<double>::infinity(), Min)},
      {"moments", Moments},
      {"fully_connected", FullyConnected},
      {"conv1d", Conv1d},
      {"max_pool1d", MaxPool1d},
      {"broadcast_rows", BroadcastRows},
      {"flatten", Flatten},
      {"second_half", SecondHalf},
      {"reverse", Reverse},
      {"slice", Slice},
      {"slice_axis", SliceAxis},
      {"Concat", Concat},
      {"add_n", Elementwise(Add)},
      {"_maximum", Elementwise(Max)},
      {"_minimum", Elementwise(Min)},
      {"elemwise_mul", Elementwise(Mul)},
      {"_copy", Elementwise(Add)},
      {"Cast", Elementwise(Add)},
      {"_tofu_multifetch", Fetch},
      {"_zeros", Fill},
      {"_full", Fill},
  };
  return *kKernels;
}

}  // namespace

double& Array::at(const Shape& index) { return data[Offset(*this, index)]; }
double Array::at(const Shape& index) const { return data[Offset(*this, index)]; }

Array Crop(const Array& array, const Box& box) {
  Array out(box.Extents());
  size_t next = 0;
  ForEachIndex(box, [&](const Shape& index) { out.data[next++] = array.at(index); });
  return out;
}

std::vector<Array> RunGraph(const Graph& graph,
                            const std::map<std::string, Array>& variables) {
  std::vector<Array> values;
  for (const Node& node : graph.nodes) {
    std::vector<Array> outputs;
    if (node.is_variable()) {
      outputs.push_back(variables.at(node.name));
    } else {
      Inputs inputs;
      for (NodeEntry input : node.inputs) {
        inputs.push_back(&values[graph.entry_id(input)]);
      }
      outputs = Kernels().at(node.op)(node, inputs);
    }
    for (Array& output : outputs) {
      if (output.shape != graph.shapes[values.size()]) {
        throw std::runtime_error("node " + node.name + " gives another shape");
      }
      values.push_back(std::move(output));
    }
  }
  return values;
}

}  // namespace tofu
