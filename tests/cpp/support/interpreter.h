// Executes small graphs of mock operators on doubles, so that a partitioned
// graph can be compared with the serial one without MXNet.
#ifndef TOFU_TESTS_CPP_SUPPORT_INTERPRETER_H_
#define TOFU_TESTS_CPP_SUPPORT_INTERPRETER_H_

#include <map>
#include <string>
#include <vector>

#include "graph/box.h"
#include "graph/graph.h"
#include "support/indices.h"

namespace tofu {

// A row-major array.
struct Array {
  Shape shape;
  std::vector<double> data;

  explicit Array(Shape s = {})
      : shape(std::move(s)), data(static_cast<size_t>(NumElements(shape)), 0.0) {}
  double& at(const Shape& index);
  double at(const Shape& index) const;
};

// Calls `visit` with every index of `box`, in row-major order.
template <typename Visit>
void ForEachIndex(const Box& box, Visit visit) {
  VisitIndices(box.begin, box.end, visit);
}

// The elements `box` of `array`.
Array Crop(const Array& array, const Box& box);

// The values of all entries, given those of the variables by name. Throws
// std::runtime_error if an operator is unknown or gives a shape other than the graph's.
std::vector<Array> RunGraph(const Graph& graph,
                            const std::map<std::string, Array>& variables);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_INTERPRETER_H_
