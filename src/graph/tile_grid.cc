#include "graph/tile_grid.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/box.h"

namespace tofu {
namespace {

int BitWidth(uint64_t value) {
  int width = 0;
  for (; value != 0; value >>= 1) ++width;
  return width;
}

// The numbers whose gamma codes follow a leading 1 in `nesting`.
std::vector<int> Decode(uint64_t nesting) {
  std::vector<int> parts;
  for (int left = BitWidth(nesting) - 1; left > 0;) {
    const uint64_t code_bits = nesting & ((uint64_t{1} << left) - 1);
    const int zeros = left - BitWidth(code_bits);
    left -= 2 * zeros + 1;
    parts.push_back(static_cast<int>(code_bits >> left));
  }
  return parts;
}

// The ends of the tiles into which these cuts divide [0, extent).
std::vector<int64_t> EndsOf(int64_t extent, const std::vector<int>& cuts) {
  std::vector<Range> tiles = {{0, extent}};
  for (int parts : cuts) {
    std::vector<Range> pieces;
    for (const Range& tile : tiles) {
      for (int digit = 0; digit < parts; ++digit) {
        pieces.push_back(Piece(tile, parts, digit));
      }
    }
    tiles = std::move(pieces);
  }
  std::vector<int64_t> ends;
  for (const Range& tile : tiles) ends.push_back(tile.end);
  return ends;
}

}  // namespace

void GridSide::Cut(int parts) {
  parts_ *= parts;
  if (nesting_ == 0) return;
  const int width = 2 * BitWidth(static_cast<uint64_t>(parts)) - 1;
  nesting_ = nesting_ << width | static_cast<uint64_t>(parts);
}

const std::vector<int64_t>& GridSide::Ends() const {
  constexpr size_t kMaxKnown = 4096;
  static const std::vector<int64_t> kRegular;
  thread_local std::map<std::pair<int64_t, uint64_t>, std::vector<int64_t>> known;
  if (IsRegular()) return kRegular;
  if (known.size() > kMaxKnown) known.clear();
  const auto [ends, is_new] = known.try_emplace({extent_, nesting_});
  if (is_new) ends->second = EndsOf(extent_, Decode(nesting_));
  return ends->second;
}

int64_t GridSide::MostShared(int64_t begin, int64_t end,
                             const std::vector<int64_t>& tile_ends) const {
  if (begin >= end) return 0;
  if (extent_ % parts_ != 0 && nesting_ == 0) return std::min(end - begin, longest());
  if (IsRegular()) {
    const int64_t tile = longest();
    const int64_t next = (begin / tile + 1) * tile;  // the end of the first tile
    if (end <= next) return end - begin;
    return std::max(next - begin, std::min(end - next, tile));
  }
  int64_t most = 0;
  auto tile_end = std::upper_bound(tile_ends.begin(), tile_ends.end(), begin);
  for (int64_t at = begin; at < end && tile_end != tile_ends.end(); at = *tile_end++) {
    most = std::max(most, std::min(*tile_end, end) - at);
  }
  return most;
}

TileGrid::TileGrid(const Shape& shape, const Cuts& cuts, const std::vector<int>& parts)
    : sides_(shape.begin(), shape.end()) {
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (IsCut(cuts[i])) sides_[static_cast<size_t>(cuts[i])].Cut(parts[i]);
  }
}

Shape TileGrid::ShortestSides() const {
  Shape sides;
  for (const GridSide& side : sides_) sides.push_back(side.shortest());
  return sides;
}

}  // namespace tofu
