// Checks for graphs that fetch with MultiFetch.
#ifndef TOFU_TESTS_CPP_SUPPORT_MULTIFETCH_CHECKS_H_
#define TOFU_TESTS_CPP_SUPPORT_MULTIFETCH_CHECKS_H_

#include "graph/graph.h"

namespace tofu {

// Expects every tile to be published at most once, and then retired once, on its own
// worker, by a head that reads the tile, its handle and the acknowledgement of every
// fetch from it.
void ExpectTilesRetired(const Graph& graph);

// Expects every publication to be retired once, by a head that reads its tiles and that
// needs every fetch from them, directly or through other nodes.
void ExpectReadersBeforeRetirements(const Graph& graph);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_MULTIFETCH_CHECKS_H_
