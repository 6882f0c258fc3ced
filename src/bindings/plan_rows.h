// Returns the fields of a plan as Python's own objects: tuples for rows, and dictionaries
// for the objects of the plan's document (docs/formats.md).
#ifndef TOFU_BINDINGS_PLAN_ROWS_H_
#define TOFU_BINDINGS_PLAN_ROWS_H_

#include <pybind11/pybind11.h>

#include "bindings/documents.h"

namespace tofu {

// (parts, groups, bytes) of every step.
pybind11::list StepsOf(const TablePlan& plan);

// (node, output, shape, dtype, cuts) of every tensor.
pybind11::list TensorsOf(const TablePlan& plan);

// (node, op, variables, bytes) of every operator: the variable that each step splits, or
// None.
pybind11::list OperatorsOf(const TablePlan& plan);

// The predicted time; None without a prediction.
pybind11::object PredictedOf(const TablePlan& plan);

pybind11::list RoutesOf(const TablePlan& plan);
pybind11::list OutputRoutesOf(const TablePlan& plan);

}  // namespace tofu

#endif  // TOFU_BINDINGS_PLAN_ROWS_H_
