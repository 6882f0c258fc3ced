// Reads and writes the parts that JSON documents about plans (plan.h, explain.h) share.
//
// Errors: UserError with the document's blame for values that do not fit the graph.
#ifndef TOFU_GRAPH_PLAN_JSON_H_
#define TOFU_GRAPH_PLAN_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "graph/cuts.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"

namespace tofu {

using OrderedJson = nlohmann::ordered_json;

// Writes compact text; replaces bytes that are not UTF-8.
std::string DumpJson(const OrderedJson& json);

// Checks "format", "version" and "graph_hash" of a document.
void CheckHeader(const JsonCursor& root, const std::string& format, int version,
                 const Graph& graph);

// Reads "parts" and checks "workers".
std::vector<int> ReadParts(const JsonCursor& root);

// Reads "shares" and "tile_multiple", which equal parts do not have.
TileShares ReadShares(const JsonCursor& root, const std::vector<int>& parts);

// "optimal" or "feasible".
const char* StatusText(PlanStatus status);
PlanStatus ReadStatus(const JsonCursor& root);

// Reads one cut per step, each of a dimension that divides there, or terms of a sum if
// the tensor may wait as such.
Cuts ReadTensorCuts(const JsonCursor& cursor, const Shape& shape,
                    const std::vector<int>& parts, bool may_wait);

// Writes a dimension, -1 or "terms".
OrderedJson TensorCutJson(int cut);
// Writes the names of variables, null for kReplicated.
OrderedJson OperatorCutsJson(const StrategyRow* row, const Cuts& cuts);
Cuts ReadOperatorCuts(const JsonCursor& cursor, const Graph& graph, int node,
                      const StrategyTable& table, const std::vector<int>& parts);

}  // namespace tofu

#endif  // TOFU_GRAPH_PLAN_JSON_H_
