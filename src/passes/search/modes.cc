#include "passes/search/modes.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "graph/box.h"
#include "graph/head_roles.h"
#include "passes/coarsen/group.h"
#include "passes/search/mesh_layout.h"
#include "passes/search/tilings/batch_dimension.h"
#include "passes/search/tilings/waiting_terms.h"

namespace tofu {
namespace {

bool IsZero(const std::string& mode) { return mode.rfind("zero-", 0) == 0; }

std::vector<int> Dimensions(const Shape& shape) {
  std::vector<int> dims(shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

CutExtents ExtentsOf(const Shape& extents, const RecursiveOptions& options) {
  return CutExtents(extents, options.restrictions.equal_tiles);
}

void CutFirstDimension(const CoarseGraph& coarse, RecursiveOptions* options) {
  for (size_t c = 0; c < coarse.tensors.size(); ++c) {
    const Shape& shape = coarse.tensors[c].shape;
    const std::vector<int> dims = Dimensions(shape);
    Cuts& given = options->given.tensors[c];
    given = FillAlike(ExtentsOf(shape, *options), dims, dims.empty() ? kReplicated : 0,
                      given, options->parts);
  }
}

// ZeRO's stages: cuts the optimizer states of parameters, or their gradients too, or
// these parameters themselves, along the first dimension that can be cut.
void CutUpdates(const Graph& graph, const CoarseGraph& coarse, bool with_parameters,
                RecursiveOptions* options) {
  const auto cut = [&](int tensor) {
    const Shape& shape = coarse.tensors[tensor].shape;
    Cuts& given = options->given.tensors[tensor];
    given = FillAlike(ExtentsOf(shape, *options), Dimensions(shape), 0, given,
                      options->parts);
  };
  for (const OpClass& op : coarse.operators) {
    if (op.HasOtherTensors()) cut(op.follows);
  }
  for (int node = 0; with_parameters && node < graph.num_nodes(); ++node) {
    if (VariableRole(graph.nodes[node]) != "parameter") continue;
    cut(coarse.tensor_class[graph.first_entry[node]]);
  }
}

// The batch of a class that has one anywhere, else kReplicated.
int BatchOf(const TensorClass& tensor, const BatchDimensions& batch) {
  int dim = kReplicated;
  for (int entry : tensor.entries) dim = std::max(dim, batch.tensors[entry]);
  return dim;
}

struct ClassBatch {
  std::vector<int> tensors;    // [tensor class]: dimension; kReplicated: none
  std::vector<int> operators;  // [operator class]: variable; kReplicated: none
};

ClassBatch FindClassBatch(const Graph& graph, const StrategyTable& table,
                          const CoarseGraph& coarse) {
  const BatchDimensions batch = FindBatch(graph, table);
  ClassBatch found;
  for (const TensorClass& tensor : coarse.tensors) {
    found.tensors.push_back(BatchOf(tensor, batch));
  }
  for (const OpClass& op : coarse.operators) {
    // Of merged timesteps, the first may read a begin state, which has no batch.
    int& var = found.operators.emplace_back(kReplicated);
    for (int node : op.nodes) var = std::max(var, batch.operators[node]);
  }
  return found;
}

// Cuts the batch; tensors without one are whole on every worker.
void CutBatch(const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
              RecursiveOptions* options) {
  const ClassBatch batch = FindClassBatch(graph, table, coarse);
  const std::vector<Cuts> fixed = options->given.tensors;
  for (size_t c = 0; c < coarse.tensors.size(); ++c) {
    Cuts& given = options->given.tensors[c];
    given = FillAlike(ExtentsOf(coarse.tensors[c].shape, *options), {}, batch.tensors[c],
                      given, options->parts);
  }
  for (size_t p = 0; p < coarse.operators.size(); ++p) {
    if (coarse.operators[p].elementwise) continue;
    const int node = coarse.operators[p].nodes[0];
    const StrategyRow* row = table.row(node);
    Shape extents;
    for (size_t v = 0; row != nullptr && v < row->vars.size(); ++v) {
      extents.push_back(VarExtent(*row, static_cast<int>(v), graph, node));
    }
    Cuts& given = options->given.operators[p];
    given = FillAlike(ExtentsOf(extents, *options), {}, batch.operators[p], given,
                      options->parts);
  }
  LetSumsWait(table, coarse, fixed, &options->given);
}

}  // namespace

const std::vector<std::string>& SearchModes() {
  static const std::vector<std::string> kModes = {
      "tofu",      "recursion", "flat",           "allrow-greedy", "spartan",
      "equalchop", "icml18",    "soybean",        "data-parallel", "zero-1",
      "zero-2",    "zero-3",    "mesh-tensorflow"};
  return kModes;
}

bool IsSearchMode(const std::string& name) {
  const std::vector<std::string>& modes = SearchModes();
  return std::find(modes.begin(), modes.end(), name) != modes.end();
}

bool ImprovesSteps(const std::string& name) { return name == "tofu" || name == "icml18"; }

bool ReleasesMerges(const std::string& name) {
  return ImprovesSteps(name) || name == "flat";
}

UpdateTies UpdateTiesOf(const std::string& name, bool may_be_whole) {
  if (name == "zero-1") return UpdateTies::kGradient;
  const bool are_apart = name == "zero-2" || (may_be_whole && ImprovesSteps(name));
  return are_apart ? UpdateTies::kNone : UpdateTies::kAll;
}

SumsWait SumsWaitOf(const std::string& name, bool may_be_whole) {
  if (name == "data-parallel" || IsZero(name) || name == "mesh-tensorflow") {
    return SumsWait::kInGradients;
  }
  const bool is_own = name == "tofu" || name == "flat";
  return may_be_whole && is_own ? SumsWait::kAnywhere : SumsWait::kNever;
}

std::vector<bool> ReplicableTensors(const Graph& graph, const StrategyTable& table,
                                    const CoarseGraph& coarse) {
  const BatchDimensions batch = FindBatch(graph, table);
  std::vector<bool> may(coarse.tensors.size(), true);
  for (const OpClass& op : coarse.operators) {
    if (!op.elementwise || op.HasOtherTensors()) continue;
    const StrategyRow* row = table.row(op.nodes[0]);
    const bool is_drawn = row != nullptr && row->random;  // otherwise by each worker
    if (is_drawn || BatchOf(coarse.tensors[op.follows], batch) >= 0) {
      may[op.follows] = false;
    }
  }
  for (const OpClass& op : coarse.operators) {
    if (op.HasOtherTensors()) may[op.follows] = true;
  }
  for (size_t c = 0; c < coarse.tensors.size(); ++c) {
    if (coarse.tensors[c].may_wait) may[c] = true;
  }
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const std::string role = VariableRole(graph.nodes[node]);
    if (role == "parameter" || role == "aux") {
      may[coarse.tensor_class[graph.first_entry[node]]] = true;
    }
  }
  return may;
}

void AllowUnevenBatch(const Graph& graph, const StrategyTable& table,
                      const CoarseGraph& coarse, Restrictions* restrictions) {
  ClassBatch batch = FindClassBatch(graph, table, coarse);
  restrictions->uneven_dims = std::move(batch.tensors);
  restrictions->uneven_vars = std::move(batch.operators);
}

void SetMode(const std::string& mode, const Graph& graph, const StrategyTable& table,
             const CoarseGraph& coarse, RecursiveOptions* options) {
  Restrictions& restrictions = options->restrictions;
  if (ImprovesSteps(mode)) {
    options->method = Method::kImproved;
    restrictions.forbid_output_reduction = mode == "icml18";
  } else if (mode == "recursion") {
    options->method = Method::kRecursion;
  } else if (mode == "soybean") {
    options->method = Method::kRecursion;
    restrictions.basic_tilings = true;
    if (restrictions.may_be_whole.empty()) {
      restrictions.may_be_whole = ReplicableTensors(graph, table, coarse);
    }
  } else if (mode == "flat") {
    options->method = Method::kJoint;
  } else if (mode == "mesh-tensorflow") {
    options->method = Method::kJoint;
    const MeshOptions mesh{options->parts, options->objective, restrictions.equal_tiles};
    options->is_proven = SearchMeshLayout(graph, table, coarse, mesh, &options->given);
  } else {
    const bool is_spartan = mode == "spartan";
    options->method = is_spartan ? Method::kGreedy : Method::kJoint;
    restrictions.same_dimension = true;
    if (mode == "allrow-greedy") {
      CutFirstDimension(coarse, options);
    } else if (mode == "data-parallel") {
      CutBatch(graph, table, coarse, options);
    } else if (IsZero(mode)) {
      CutUpdates(graph, coarse, mode == "zero-3", options);
      CutBatch(graph, table, coarse, options);
    } else {
      TOFU_CHECK(is_spartan || mode == "equalchop") << "no mode is called " << mode;
    }
  }
}

}  // namespace tofu
