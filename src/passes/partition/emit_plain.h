// Carries out a FetchSpec with stock operators (mxnet/dialect/dialect.h). Every remote
// piece is sliced on its owner's context, so only needed data crosses. The reader
// concatenates the pieces, last dimension first, and reduces the terms. The executor
// itself inserts the copies between contexts when it binds the graph.
//
// Input:      a spec (fetch.h) and the entry that every source worker holds.
// Output:     nodes appended to the builder; the entry with the assembled region.
// Invariants: a region that is exactly one source array adds no node.
// Not handled: pieces shared between specs; so the bytes are exactly the plan's.
#ifndef TOFU_PASSES_PARTITION_EMIT_PLAIN_H_
#define TOFU_PASSES_PARTITION_EMIT_PLAIN_H_

#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/divide/fetch.h"
#include "passes/partition/graph_builder.h"

namespace tofu {

// `entries[w]` is the source array of worker w. New nodes are called
// "<name>/...".
NodeEntry EmitPlain(const FetchSpec& spec, const std::vector<NodeEntry>& entries,
                    int dtype, const std::string& name, GraphBuilder* builder);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_EMIT_PLAIN_H_
