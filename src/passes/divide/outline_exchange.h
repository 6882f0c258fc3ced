// Sums up the messages of one worker in an exchange, to count their memory: an exchange
// delivers several fetches, with one message for each pair of workers.
//
// Nothing is made for a message, of which there may be as many as workers.
//
// Input:      the worker's program and the fetches of the exchange.
// Output:     the bytes of its messages, and the few that are told apart.
// Errors:     worker_program.h's.
// Complexity: O(p log p) for p pieces that the worker sends or receives.
#ifndef TOFU_PASSES_DIVIDE_OUTLINE_EXCHANGE_H_
#define TOFU_PASSES_DIVIDE_OUTLINE_EXCHANGE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "graph/box.h"
#include "passes/divide/fetch.h"
#include "passes/divide/worker_program.h"

namespace tofu {

// Messages of a single piece each, all of the same extents in the same array.
struct SingleMessages {
  int fetch = 0;  // number among the fetches
  Box box;        // of the first one, within the array
  int count = 0;
};

// Messages of equal content count once where they are sent, as they are packed once.
struct ExchangeOutline {
  int64_t packed_bytes = 0;           // sent in messages of several pieces
  std::vector<SingleMessages> alone;  // sent
  int64_t received_bytes = 0;         // in messages that are not in `apart`
  // Sender and bytes of each message that may become a region as it is: it has a piece
  // that is a whole region.
  std::vector<std::pair<int, int64_t>> apart;
};

// `forms`: for each fetch, a number that is equal where pieces of one array lie alike in
// messages.
ExchangeOutline OutlineExchange(const WorkerProgram& program,
                                const std::vector<int>& fetches,
                                const std::vector<int>& forms);

// For each term, its piece if that is the whole region, or else a kFill piece: it takes
// memory of its own. Of neighbouring terms that are alike, the first three.
std::vector<FetchPiece> OutlineTerms(const ProgramStep& fetch);

}  // namespace tofu

#endif  // TOFU_PASSES_DIVIDE_OUTLINE_EXCHANGE_H_
