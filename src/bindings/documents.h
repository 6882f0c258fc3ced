// The objects that Python holds: graph, strategy table, plan, partitioned graph and
// training step. Their contents stay in C++ from the training graph to the graph that
// MXNet binds. Also declares the functions by which module.cc binds all of tofu._core.
#ifndef TOFU_BINDINGS_DOCUMENTS_H_
#define TOFU_BINDINGS_DOCUMENTS_H_

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings/containers.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"

namespace tofu {

using SharedGraph = std::shared_ptr<const Graph>;

// A read-only node for Python; it keeps its graph alive.
struct NodeView {
  SharedGraph graph;
  int number = 0;

  const Node& node() const { return graph->nodes[number]; }
};

// A table keeps its graph alive, and a plan its table, because it means nothing alone.
struct GraphTable {
  SharedGraph graph;
  StrategyTable table;
};
using SharedTable = std::shared_ptr<const GraphTable>;

struct TablePlan {
  SharedTable table;
  Plan plan;

  const Graph& graph() const { return *table->graph; }
  const StrategyTable& strategies() const { return table->table; }
};

// The pointer to non-const that pybind11 needs; the graph never changes.
inline std::shared_ptr<Graph> Held(const SharedGraph& graph) {
  return std::const_pointer_cast<Graph>(graph);
}

// Shapes are Python tuples, as in MXNet.
inline pybind11::tuple ShapeTuple(const Shape& shape) {
  pybind11::tuple tuple(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) tuple[d] = pybind11::int_(shape[d]);
  return tuple;
}

// Calls a Python function with a pass's name and dump, from a pass that has released
// the interpreter's lock.
using PassFunction = std::optional<pybind11::function>;

inline auto OnPass(const PassFunction& function) {
  return [&function](const std::string& name, const std::string& dump) {
    if (!function) return;
    const pybind11::gil_scoped_acquire lock;
    (*function)(name, dump);
  };
}

void BindGraph(pybind11::module_* module);    // Graph, Node, StrategyTable
void BindPlan(pybind11::module_* module);     // Plan, plan
void BindStep(pybind11::module_* module);     // Partitioned, TrainingStep
void BindProgram(pybind11::module_* module);  // WorkerProgram
void BindMemory(pybind11::module_* module);   // OperatorUses, executor_memory
void BindRecompute(pybind11::module_* module);
void BindSimulate(pybind11::module_* module);  // Machine, OperatorCalls, simulate
void BindKernels(pybind11::module_* module);   // the CUDA kernels of MultiFetch
void BindSolver(pybind11::module_* module);    // the solver of problems with limits
void BindErrors();                             // C++ errors as Python exceptions

}  // namespace tofu

#endif  // TOFU_BINDINGS_DOCUMENTS_H_
