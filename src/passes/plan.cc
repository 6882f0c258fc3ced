#include "passes/plan.h"

#include <limits>

#include "graph/error.h"
#include "graph/json.h"

namespace tofu {
namespace {

constexpr char kFormatId[] = "tofu-plan";
constexpr int kVersion = 1;

using Json = nlohmann::ordered_json;

// Workers share the tensors of how many groups before this step.
int64_t GroupsBefore(const Plan& plan, size_t step) {
  int64_t groups = 1;
  for (size_t i = 0; i < step; ++i) groups *= plan.parts[i];
  return groups;
}

double Gap(const Plan& plan) {
  const int64_t total = plan.total_bytes();
  return total == 0 ? 0.0
                    : static_cast<double>(total - plan.lower_bound_bytes) /
                          static_cast<double>(total);
}

Json StepsJson(const Plan& plan) {
  Json steps = Json::array();
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    steps.push_back({{"parts", plan.parts[i]},
                     {"groups", GroupsBefore(plan, i)},
                     {"bytes", plan.step_bytes[i]}});
  }
  return steps;
}

Json TensorsJson(const Plan& plan, const Graph& graph) {
  Json tensors = Json::array();
  for (int node = 0; node < graph.num_nodes(); ++node) {
    for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
      const NodeEntry entry{node, i};
      tensors.push_back({{"node", graph.nodes[node].name},
                         {"output", i},
                         {"shape", graph.shape(entry)},
                         {"dtype", graph.dtype(entry)},
                         {"cuts", plan.tensor_cuts[graph.entry_id(entry)]}});
    }
  }
  return tensors;
}

Json OperatorsJson(const Plan& plan, const Graph& graph, const StrategyTable& table) {
  Json operators = Json::array();
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (graph.nodes[node].is_variable()) continue;
    Json cuts = Json::array();
    for (int var : plan.op_cuts[node]) {
      cuts.push_back(var == kReplicated ? Json() : Json(table.row(node)->vars[var].name));
    }
    operators.push_back({{"node", graph.nodes[node].name},
                         {"op", graph.nodes[node].op},
                         {"cuts", std::move(cuts)},
                         {"bytes", plan.node_bytes[node]}});
  }
  return operators;
}

// The cuts of one tensor, each of a dimension that divides at that step.
std::vector<int> ReadTensorCuts(const JsonCursor& cursor, Shape shape,
                                const std::vector<int>& parts) {
  if (cursor.Size() != static_cast<int>(parts.size())) {
    cursor.Fail("an array of " + std::to_string(parts.size()) + ", one cut a step");
  }
  std::vector<int> cuts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonCursor cut = cursor.At(static_cast<int>(i));
    cuts.push_back(static_cast<int>(cut.Int(-1, static_cast<int64_t>(shape.size()) - 1)));
    if (cuts.back() == kReplicated) continue;
    int64_t& extent = shape[cuts.back()];
    if (extent % parts[i] != 0) {
      cut.Fail("a dimension that divides by " + std::to_string(parts[i]) +
               " at this step, or -1");
    }
    extent /= parts[i];
  }
  return cuts;
}

int ReadVarName(const JsonCursor& cursor, const StrategyRow* row) {
  if (cursor.value().is_null()) return kReplicated;
  if (row == nullptr) cursor.Fail("null: the operator is not described");
  for (int var : row->splittable) {
    if (row->vars[var].name == cursor.String()) return var;
  }
  cursor.Fail("null or the name of a variable that " + row->op + " can be split along");
}

std::vector<int> ReadOperatorCuts(const JsonCursor& cursor, const Graph& graph, int node,
                                  const StrategyTable& table,
                                  const std::vector<int>& parts) {
  if (cursor.Size() != static_cast<int>(parts.size())) {
    cursor.Fail("an array of " + std::to_string(parts.size()) + ", one cut a step");
  }
  const StrategyRow* row = table.row(node);
  std::vector<int64_t> extents;
  for (size_t v = 0; row != nullptr && v < row->vars.size(); ++v) {
    extents.push_back(VarExtent(*row, static_cast<int>(v), graph, node));
  }
  std::vector<int> cuts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonCursor cut = cursor.At(static_cast<int>(i));
    cuts.push_back(ReadVarName(cut, row));
    if (cuts.back() == kReplicated) continue;
    int64_t& extent = extents[cuts.back()];
    if (extent % parts[i] != 0) {
      cut.Fail("a variable whose extent divides by " + std::to_string(parts[i]) +
               " at this step, or null");
    }
    extent /= parts[i];
  }
  return cuts;
}

// Entry number `index` of a list must speak of this node.
void CheckName(const JsonCursor& cursor, const std::string& name) {
  if (cursor.At("node").String() != name) {
    cursor.At("node").Fail("\"" + name + "\": the plan is of another graph");
  }
}

void ReadTensors(const JsonCursor& root, const Graph& graph, Plan* plan) {
  const JsonCursor tensors = root.At("tensors");
  if (tensors.Size() != graph.num_entries()) {
    tensors.Fail("an array of " + std::to_string(graph.num_entries()) +
                 ", one for every tensor of the graph");
  }
  for (int node = 0; node < graph.num_nodes(); ++node) {
    for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
      const JsonCursor tensor = tensors.At(graph.entry_id({node, i}));
      CheckName(tensor, graph.nodes[node].name);
      tensor.At("output").Int(i, i);
      plan->tensor_cuts.push_back(
          ReadTensorCuts(tensor.At("cuts"), graph.shape({node, i}), plan->parts));
    }
  }
}

void ReadOperators(const JsonCursor& root, const Graph& graph, const StrategyTable& table,
                   Plan* plan) {
  const JsonCursor operators = root.At("operators");
  int next = 0;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    plan->op_cuts.emplace_back(plan->parts.size(), kReplicated);
    plan->node_bytes.push_back(0);
    if (graph.nodes[node].is_variable()) continue;
    const JsonCursor op = operators.At(next++);
    CheckName(op, graph.nodes[node].name);
    plan->op_cuts.back() =
        ReadOperatorCuts(op.At("cuts"), graph, node, table, plan->parts);
    plan->node_bytes.back() = op.At("bytes").Int(0, std::numeric_limits<int64_t>::max());
  }
  if (operators.Size() != next) {
    operators.Fail("an array of " + std::to_string(next) + ", one for every operator");
  }
}

void ReadSteps(const JsonCursor& root, Plan* plan) {
  constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max() / 64;
  const JsonCursor parts = root.At("parts");
  int64_t workers = 1;
  for (int i = 0; i < parts.Size(); ++i) {
    plan->parts.push_back(static_cast<int>(parts.At(i).Int(2, kMaxWorkers)));
    workers *= plan->parts.back();
    if (workers > kMaxWorkers)
      parts.Fail("at most " + std::to_string(kMaxWorkers) + " workers in all");
  }
  root.At("workers").Int(workers, workers);
  const JsonCursor steps = root.At("steps");
  if (steps.Size() != parts.Size()) {
    steps.Fail("an array of " + std::to_string(parts.Size()) + ", one for every part");
  }
  for (int i = 0; i < steps.Size(); ++i) {
    plan->step_bytes.push_back(steps.At(i).At("bytes").Int(-kMaxBytes, kMaxBytes));
  }
  plan->lower_bound_bytes = root.At("lower_bound_bytes").Int(0, kMaxBytes);
}

}  // namespace

std::string WritePlan(const Plan& plan, const Graph& graph, const StrategyTable& table) {
  Json json = {{"format", kFormatId},
               {"version", kVersion},
               {"workers", plan.workers()},
               {"graph_hash", GraphHash(graph)},
               {"parts", plan.parts},
               {"steps", StepsJson(plan)},
               {"total_bytes", plan.total_bytes()},
               {"lower_bound_bytes", plan.lower_bound_bytes},
               {"gap", Gap(plan)},
               {"status", plan.status == PlanStatus::kOptimal ? "optimal" : "feasible"},
               {"mode", plan.mode},
               {"nodes", graph.num_nodes()},
               {"search_seconds", plan.search_seconds}};
  json["tensors"] = TensorsJson(plan, graph);
  json["operators"] = OperatorsJson(plan, graph, table);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Plan ReadPlan(const std::string& json, const Graph& graph, const StrategyTable& table) {
  const JsonDocument document =
      ParseJson(json, Blame::kPlan, "plan", "make the plan again from this graph");
  const JsonCursor root(document);
  if (root.At("format").String() != kFormatId) {
    root.At("format").Fail(std::string("\"") + kFormatId + "\"");
  }
  root.At("version").Int(kVersion, kVersion);
  const std::string hash = GraphHash(graph);
  if (root.At("graph_hash").String() != hash) {
    root.At("graph_hash").Fail("\"" + hash + "\": the plan is of another graph");
  }
  Plan plan;
  ReadSteps(root, &plan);
  ReadTensors(root, graph, &plan);
  ReadOperators(root, graph, table, &plan);
  const std::string& status = root.At("status").String();
  if (status != "optimal" && status != "feasible") {
    root.At("status").Fail("\"optimal\" or \"feasible\"");
  }
  plan.status = status == "optimal" ? PlanStatus::kOptimal : PlanStatus::kFeasible;
  plan.mode = root.At("mode").String();
  plan.search_seconds = root.At("search_seconds").Number();
  return plan;
}

}  // namespace tofu
