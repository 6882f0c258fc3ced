#include "graph/plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "graph/box.h"
#include "graph/plan_json.h"

namespace tofu {
namespace {

constexpr char kFormatId[] = "tofu-plan";
constexpr int kVersion = 1;

using Json = OrderedJson;

// The number of groups of workers before this step.
int64_t GroupsBefore(const Plan& plan, size_t step) {
  int64_t groups = 1;
  for (size_t i = 0; i < step; ++i) groups *= plan.parts[i];
  return groups;
}

double Gap(const Plan& plan) {
  const int64_t total = plan.cost();
  return total == 0 ? 0.0
                    : static_cast<double>(total - plan.lower_bound()) /
                          static_cast<double>(total);
}

Json PredictedJson(const PredictedTime& time) {
  Json links = Json::array();
  for (const PredictedTime::Link& link : time.links) {
    links.push_back({{"name", link.name}, {"bytes", link.bytes}});
  }
  Json json = {{"machine", time.machine},
               {"step_ns", time.step_ns},
               {"compute_ns", time.compute_ns},
               {"fetch_ns", time.fetch_ns},
               {"hidden_ns", time.hidden_ns},
               {"host_ns", time.host_ns},
               {"links", links}};
  if (time.relayed_bytes != 0) json["relayed_bytes"] = time.relayed_bytes;
  if (time.lower_bound_ns >= 0) json["lower_bound_ns"] = time.lower_bound_ns;
  return json;
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

// The shares of every step; null if its parts are equal.
Json SharesJson(const Plan& plan) {
  Json steps = Json::array();
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const std::vector<int>& shares = plan.shares.of(i);
    steps.push_back(shares.empty() ? Json() : Json(shares));
  }
  return steps;
}

// Quotes a name; fast for names that need no escapes, as most of the many do.
std::string Quoted(const std::string& text) {
  for (char c : text) {
    if (c < ' ' || c > '~' || c == '"' || c == '\\') return DumpJson(text);
  }
  return '"' + text + '"';
}

template <typename Values, typename Format>
std::string List(const Values& values, Format format) {
  std::string text = "[";
  for (const auto& value : values) {
    if (text.size() > 1) text += ',';
    text += format(value);
  }
  return text + ']';
}

// The lists of tensors and operators as text: documents of so many small objects would
// take far more time and memory.
std::string TensorsText(const Plan& plan, const Graph& graph) {
  const auto number = [](auto value) { return std::to_string(value); };
  const auto cut_text = [](int cut) {
    return cut == kTerms ? Quoted(kTermsName) : std::to_string(cut);
  };
  std::string text = "[";
  for (int node = 0; node < graph.num_nodes(); ++node) {
    for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
      const NodeEntry entry{node, i};
      if (text.size() > 1) text += ',';
      text += R"({"node":)" + Quoted(graph.nodes[node].name);
      text += R"(,"output":)" + std::to_string(i);
      text += R"(,"shape":)" + List(graph.shape(entry), number);
      text += R"(,"dtype":)" + std::to_string(graph.dtype(entry));
      text +=
          R"(,"cuts":)" + List(plan.tensor_cuts[graph.entry_id(entry)], cut_text) + '}';
    }
  }
  return text + ']';
}

std::string OperatorsText(const Plan& plan, const Graph& graph,
                          const StrategyTable& table) {
  std::string text = "[";
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& n = graph.nodes[node];
    if (n.is_variable()) continue;
    const auto name = [&](int var) {
      return var == kReplicated ? "null" : Quoted(table.row(node)->vars[var].name);
    };
    if (text.size() > 1) text += ',';
    text += R"({"node":)" + Quoted(n.name) + R"(,"op":)" + Quoted(n.op);
    text += R"(,"cuts":)" + List(plan.op_cuts[node], name);
    text += R"(,"bytes":)" + std::to_string(plan.node_bytes[node]) + '}';
  }
  return text + ']';
}

Json StopsJson(const std::vector<TileSplits>& stops) {
  Json list = Json::array();
  for (const TileSplits& splits : stops) {
    Json stop = Json::array();
    for (const TileSplit& split : splits) {
      stop.push_back({{"step", split.step}, {"dim", split.dim}});
    }
    list.push_back(std::move(stop));
  }
  return list;
}

Json RoutesJson(const Plan& plan, const Graph& graph) {
  Json routes = Json::array();
  for (const Route& route : plan.routes) {
    routes.push_back({{"node", graph.nodes[route.node].name},
                      {"input", route.input},
                      {"stops", StopsJson(route.stops)}});
  }
  return routes;
}

Json OutputRoutesJson(const Plan& plan, const Graph& graph) {
  Json routes = Json::array();
  for (const OutputRoute& route : plan.output_routes) {
    routes.push_back({{"node", graph.nodes[route.node].name},
                      {"output", route.output},
                      {"partial", StopsJson(route.partial)},
                      {"stops", StopsJson(route.stops)}});
  }
  return routes;
}

// Checks that an entry of a list is about this node.
void CheckName(const JsonCursor& cursor, const std::string& name) {
  if (cursor.At("node").String() != name) {
    cursor.At("node").Fail("\"" + name + "\": the plan is for another graph");
  }
}

void ReadTensors(const JsonCursor& root, const Graph& graph, Plan* plan) {
  const JsonCursor tensors = root.At("tensors");
  if (tensors.Size() != graph.num_entries()) {
    tensors.Fail("an array of " + std::to_string(graph.num_entries()) +
                 ", one for every tensor of the graph");
  }
  std::vector<bool> may_wait(static_cast<size_t>(graph.num_entries()), true);
  for (NodeEntry head : graph.heads) may_wait[graph.entry_id(head)] = false;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
      const bool waits =
          may_wait[graph.entry_id({node, i})] && !graph.nodes[node].is_variable();
      const JsonCursor tensor = tensors.At(graph.entry_id({node, i}));
      CheckName(tensor, graph.nodes[node].name);
      tensor.At("output").Int(i, i);
      plan->tensor_cuts.push_back(
          ReadTensorCuts(tensor.At("cuts"), graph.shape({node, i}), plan->parts, waits));
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

TileSplits ReadStop(const JsonCursor& cursor, const Shape& shape,
                    const std::vector<int>& parts) {
  TileSplits splits;
  for (int i = 0; i < cursor.Size(); ++i) {
    const JsonCursor split = cursor.At(i);
    splits.push_back({static_cast<int>(split.At("step").Int(
                          0, static_cast<int64_t>(parts.size()) - 1)),
                      static_cast<int>(split.At("dim").Int(
                          0, static_cast<int64_t>(shape.size()) - 1))});
    for (int other = 0; other < i; ++other) {
      if (splits[other].step != splits[i].step) continue;
      split.At("step").Fail("another step than those before");
    }
  }
  if (splits.empty()) cursor.Fail("at least one step that divides the region");
  return splits;
}

std::vector<TileSplits> ReadStops(const JsonCursor& stops, const Shape& shape,
                                  const std::vector<int>& parts) {
  std::vector<TileSplits> list;
  for (int stop = 0; stop < stops.Size(); ++stop) {
    list.push_back(ReadStop(stops.At(stop), shape, parts));
  }
  return list;
}

// The node that an entry of a list names.
class NodeNames {
 public:
  explicit NodeNames(const Graph& graph) {
    for (int node = 0; node < graph.num_nodes(); ++node) {
      nodes_.emplace(graph.nodes[node].name, node);
    }
  }

  int Read(const JsonCursor& cursor) const {
    const auto node = nodes_.find(std::string(cursor.At("node").String()));
    if (node == nodes_.end()) {
      cursor.At("node").Fail("a node of the graph: the plan is for another graph");
    }
    return node->second;
  }

 private:
  std::map<std::string, int> nodes_;
};

template <typename Item>
void SortByNode(std::vector<Item>* routes) {
  std::stable_sort(routes->begin(), routes->end(),
                   [](const Item& a, const Item& b) { return a.node < b.node; });
}

void ReadRoutes(const JsonCursor& routes, const Graph& graph, Plan* plan) {
  const NodeNames names(graph);
  for (int i = 0; i < routes.Size(); ++i) {
    const JsonCursor item = routes.At(i);
    Route route;
    route.node = names.Read(item);
    const std::vector<NodeEntry>& inputs = graph.nodes[route.node].inputs;
    route.input = static_cast<int>(
        item.At("input").Int(0, static_cast<int64_t>(inputs.size()) - 1));
    const JsonCursor stops = item.At("stops");
    if (stops.Size() == 0) stops.Fail("at least one stop");
    route.stops = ReadStops(stops, graph.shape(inputs[route.input]), plan->parts);
    plan->routes.push_back(std::move(route));
  }
  SortByNode(&plan->routes);
}

void ReadOutputRoutes(const JsonCursor& routes, const Graph& graph, Plan* plan) {
  const NodeNames names(graph);
  for (int i = 0; i < routes.Size(); ++i) {
    const JsonCursor item = routes.At(i);
    OutputRoute route;
    route.node = names.Read(item);
    route.output = static_cast<int>(
        item.At("output").Int(0, graph.nodes[route.node].num_outputs - 1));
    const Shape& shape = graph.shape({route.node, route.output});
    route.partial = ReadStops(item.At("partial"), shape, plan->parts);
    route.stops = ReadStops(item.At("stops"), shape, plan->parts);
    if (route.partial.empty() && route.stops.empty()) {
      item.At("stops").Fail("at least one stop, here or in partial");
    }
    plan->output_routes.push_back(std::move(route));
  }
  SortByNode(&plan->output_routes);
}

void ReadSteps(const JsonCursor& root, Plan* plan) {
  constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max() / 64;
  plan->parts = ReadParts(root);
  plan->shares = ReadShares(root, plan->parts);
  const JsonCursor steps = root.At("steps");
  if (steps.Size() != static_cast<int>(plan->parts.size())) {
    steps.Fail("an array of " + std::to_string(plan->parts.size()) +
               ", one for every part");
  }
  for (int i = 0; i < steps.Size(); ++i) {
    plan->step_bytes.push_back(steps.At(i).At("bytes").Int(-kMaxBytes, kMaxBytes));
  }
  plan->lower_bound_bytes = root.At("lower_bound_bytes").Int(0, kMaxBytes);
}

}  // namespace

void Plan::SetLowerBound(int64_t bound) {
  (objective ? objective->lower_bound : lower_bound_bytes) = bound;
  const bool is_predicted = objective && predicted && predicted->lower_bound_ns >= 0;
  if (is_predicted) predicted->lower_bound_ns = bound;
}

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
               {"status", StatusText(plan.status)},
               {"mode", plan.mode},
               {"nodes", graph.num_nodes()},
               {"search_seconds", plan.search_seconds}};
  if (!plan.shares.of_steps.empty()) json["shares"] = SharesJson(plan);
  if (plan.shares.multiple != 1) json["tile_multiple"] = plan.shares.multiple;
  if (plan.objective) json["objective"] = plan.objective->name;
  if (plan.predicted) json["predicted"] = PredictedJson(*plan.predicted);
  if (!plan.routes.empty()) json["routes"] = RoutesJson(plan, graph);
  if (!plan.output_routes.empty()) json["output_routes"] = OutputRoutesJson(plan, graph);
  std::string text = DumpJson(json);
  text.pop_back();
  return text + R"(,"tensors":)" + TensorsText(plan, graph) + R"(,"operators":)" +
         OperatorsText(plan, graph, table) + '}';
}

Plan ReadPlan(const std::string& json, const Graph& graph, const StrategyTable& table) {
  const JsonDocument document =
      ParseJson(json, Blame::kPlan, "plan", "make the plan again from this graph");
  const JsonCursor root(document);
  CheckHeader(root, kFormatId, kVersion, graph);
  Plan plan;
  ReadSteps(root, &plan);
  ReadTensors(root, graph, &plan);
  ReadOperators(root, graph, table, &plan);
  plan.status = ReadStatus(root);
  if (root.Has("routes")) ReadRoutes(root.At("routes"), graph, &plan);
  if (root.Has("output_routes")) ReadOutputRoutes(root.At("output_routes"), graph, &plan);
  if (root.Has("mode")) plan.mode = root.At("mode").String();
  plan.search_seconds = root.At("search_seconds").Number();
  return plan;
}

}  // namespace tofu
