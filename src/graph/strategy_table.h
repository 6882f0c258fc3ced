// The strategy table: for every node of a graph, the ways to partition its
// operator that the analysis of its description found (paper section 4.2).
// docs/formats.md documents the JSON form.
//
// Errors: UserError(kTable) for text that is not a table, a table of another
//         version, or one that does not fit the graph.
#ifndef TOFU_GRAPH_STRATEGY_TABLE_H_
#define TOFU_GRAPH_STRATEGY_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tofu {

constexpr int kStrategyTableVersion = 1;

// floor((sum of coef * bound(var) + constant) / divisor).
struct AffineForm {
  struct Term {
    int var = 0;
    bool upper = false;  // the inclusive upper bound of var, else its lower
    int64_t coef = 0;
  };
  std::vector<Term> terms;
  int64_t constant = 0;
  int64_t divisor = 1;
};

// The part of one dimension that an operator touches, both ends inclusive. `whole`: all
// of it, whatever the variables' ranges are.
struct DimAccess {
  bool whole = true;
  AffineForm lo;
  AffineForm hi;
};

// kLogSumExp: the logarithm of the sum of the terms' exponentials. kWeighted: the terms'
// mean, weighted by the exponentials of the terms of another output. kApart: none; only
// programs have it, for these weights.
enum class Reducer { kSum, kMax, kMin, kProd, kLogSumExp, kWeighted, kApart };

// The output whose terms are the logarithms of kWeighted's weights, and the dimensions of
// the weighted output that it has, too.
struct Weights {
  int output = 0;
  std::vector<int> dims;
};

struct Padding {
  std::vector<int> vars;   // regions are not clipped when one of these is split
  std::string fill = "0";  // value outside the tensor
};

struct InputAccess {
  std::vector<DimAccess> dims;
  std::vector<int> only_first;  // all parts except 0 of these vars get zeros
  std::optional<Padding> pad;
};

struct OutputAccess {
  std::vector<DimAccess> dims;
  std::map<int, Reducer> reduce;        // reduction variable -> how parts combine
  std::optional<Weights> weights = {};  // of kWeighted
  // For an output that no node reads: the input whose region has the shape of a part's
  // output. Else -1; then `dims` apply.
  int like = -1;
};

// More parts than any plan has: the extent of a variable that numbers terms of a sum.
constexpr int64_t kTermsExtent = int64_t{1} << 40;
constexpr char kTermsName[] = "terms";

struct IndexVar {
  enum class Extent { kConstant, kInput, kOutput, kTerms };
  std::string name;
  Extent kind = Extent::kConstant;
  int slot = 0;  // input or output number
  int dim = 0;
  int64_t constant = 0;  // kConstant
};

// An operator attribute that depends on a size of the tile, or on where it begins.
struct AttrRewrite {
  enum class Kind { kSize, kSizes, kBegin, kConst, kOutputShape };
  std::string name;
  std::vector<int> vars;  // rewritten when one of these is split
  Kind kind = Kind::kConst;
  std::vector<int> sizes;  // variables: kSize and kBegin (one), kSizes
  int64_t times = 1;       // kSize: elements per value of the variable
  std::string text;        // kConst
  int output = 0;          // kOutputShape
};

struct StrategyRow {
  std::string op;
  std::string source;  // "file:line" of the description
  bool elementwise = false;
  bool random = false;
  bool light = false;  // with replication, all workers may compute it whole
  bool views = false;  // its outputs are in the memory of its first input
  std::vector<IndexVar> vars;
  std::vector<int> splittable;
  std::vector<OutputAccess> outputs;
  std::vector<InputAccess> inputs;
  std::vector<AttrRewrite> attrs;
  // The variable that numbers terms of all inputs together, if the outputs for terms add
  // up to those for their sums; else -1. It is not splittable: only plans with sums that
  // wait use it (passes/coarsen/waiting_sums.h).
  int terms = -1;
};

struct StrategyTable {
  std::vector<StrategyRow> rows;
  std::vector<int> node_rows;  // per graph node; -1: variable or undescribed

  // Null for a node without a description.
  const StrategyRow* row(int node) const {
    return node_rows[node] < 0 ? nullptr : &rows[node_rows[node]];
  }
};

// Adds the variable that numbers terms to a row: each part adds to every output, and an
// input that is no sum counts for the first part.
void AddTerms(StrategyRow* row);

StrategyTable ReadStrategyTable(const std::string& json, const Graph& graph);

}  // namespace tofu

#endif  // TOFU_GRAPH_STRATEGY_TABLE_H_
