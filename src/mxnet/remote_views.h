// Views of other workers' arrays that a fetch on a CPU context reads.
//
// MXNet notes with every array in which of oneDNN's layouts it is. It looks at the note
// whenever it hands an array to an operator, and operators that read the array write to
// it. On one worker they take turns; but a fetch reads an array while operators of the
// array's own worker may read it too. It only does so for arrays in the plain layout
// (Crossing::kPlainTiles, passes/partition/emit_multifetch.h), so it never needs the
// note: here it gets views of such arrays that have none.
//
// Layouts of MXNet 1.9.1's NDArray and its chunk, in builds with oneDNN.
//
// Position:   under free_operators.cc, which checks that a context is where it should be.
// Not handled: arrays of more than 4 dimensions, whose shapes would be on the heap.
#ifndef TOFU_MXNET_REMOTE_VIEWS_H_
#define TOFU_MXNET_REMOTE_VIEWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "op_maps.h"

namespace tofu {

// mxnet::Context
struct RawContext {
  int32_t device_type;
  int32_t device_id;
};

inline bool operator==(const RawContext& a, const RawContext& b) {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

// mxnet::NDArray::Chunk
struct RawChunk {
  void* data;
  size_t size;
  RawContext context;
  char others[32];
  void* layout[2];  // std::shared_ptr<MKLDNNMemory>
  char more[152];
};
static_assert(sizeof(RawChunk) == 224 && offsetof(RawChunk, layout) == 56,
              "a chunk takes 224 bytes and notes its layout at byte 56");

// mxnet::NDArray
struct RawArray {
  RawChunk* chunk;
  char others[216];
};
static_assert(sizeof(RawArray) == 224, "mxnet::NDArray takes 224 bytes");

// The inputs of an operator on `context`, with views in place of other contexts' arrays.
// Owns nothing of the arrays.
class RemoteViews {
 public:
  RemoteViews(const RawVector<RawArray>& inputs, const RawContext& context)
      : arrays_(inputs.begin, inputs.end), chunks_(arrays_.size()) {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (arrays_[i].chunk->context == context) continue;
      chunks_[i] = *arrays_[i].chunk;
      chunks_[i].layout[0] = chunks_[i].layout[1] = nullptr;
      arrays_[i].chunk = &chunks_[i];
    }
    views_ = {arrays_.data(), arrays_.data() + arrays_.size(),
              arrays_.data() + arrays_.size()};
  }
  RemoteViews(const RemoteViews&) = delete;
  RemoteViews& operator=(const RemoteViews&) = delete;

  const RawVector<RawArray>* inputs() const { return &views_; }

 private:
  std::vector<RawArray> arrays_;
  std::vector<RawChunk> chunks_;
  RawVector<RawArray> views_;
};

}  // namespace tofu

#endif  // TOFU_MXNET_REMOTE_VIEWS_H_
