// Frees tofu's fetches from resources and copies that they never use.
//
// MXNet 1.9.1 lends every operator of an extension library temporary space and a
// random number generator, through its FResourceRequest. An operator waits for
// earlier ones that hold the same resources. CPU contexts share a single generator,
// and a context's operators share their temporary space: the fetches of all workers would
// run one after the other, and a fetch that waits for another worker would hold up its
// own worker's operators.
//
// Here fetches request nothing. MXNet's own dispatcher, their FComputeEx, still reads
// both resources to pass them to the library. So it runs inside a function of ours, which
// lends it two empty ones.
//
// MXNet also hands every input over in the plain layout: an operator without the flag
// TIsMKLDNN gets a copy of an input in one of oneDNN's layouts. On CPU contexts a fetch
// gets that flag here, and views of other workers' arrays (remote_views.h); its
// dispatcher copies its own worker's arrays if it must.
//
// This file writes to memory of libmxnet.so whose layout is not part of a public ABI
// (op_maps.h). The guards:
//   1. only MXNet 1.9.1, and its maps are read through a pipe (op_maps.h);
//   2. the request that is replaced must answer as 1.9.1's does;
//   3. only the two functions of tofu's own operators are replaced;
//   4. the dispatcher's argument must hold both resources where the layout says,
//      when the operators first run with them, before they run without and before
//      anything is written there;
//   5. the flag is set only in a map that holds it for a convolution and for none of
//      tofu's operators, and if the arrays of the first calls were on their operators'
//      contexts; else TofuFreeViews says that fetches may not read other workers' arrays.
// If a guard fails, the operators get back what MXNet registered for them.
// tofu.mx.extension adds a sixth: it checks a fetch without resources.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "fetch/node_names.h"
#include "multifetch_ops.h"
#include "op_maps.h"
#include "remote_views.h"
#include "safe_reader.h"

#define TOFU_EXPORT __attribute__((visibility("default")))

namespace {

using tofu::FindHolder;
using tofu::FindMxnet;
using tofu::FindOp;
using tofu::FindOpMap;
using tofu::Flag;
using tofu::Invoker;
using tofu::IsRegistered;
using tofu::Mxnet;
using tofu::OpIndices;
using tofu::RawAny;
using tofu::RawArray;
using tofu::RawContext;
using tofu::RawOpMap;
using tofu::RawVector;
using tofu::RemoteViews;
using tofu::SafeReader;
using tofu::Slot;
using tofu::SlotOf;

// mxnet::ResourceRequest::Type
constexpr int32_t kTempSpace = 1;
constexpr int32_t kParallelRandom = 2;
constexpr int32_t kRequests[] = {kTempSpace, kParallelRandom};

// mxnet::Resource
struct RawResource {
  int32_t type;
  int32_t padding;
  void* var;
  int32_t id;
  int32_t more_padding;
  const void* content;
};
static_assert(sizeof(RawResource) == 32, "mxnet::Resource takes 32 bytes");

// mxnet::OpContext
struct RawOpContext {
  bool need_grad;
  bool is_train;
  char padding[6];
  RawContext context;
  void* stream;
  void* aux_stream;
  bool is_bulk;
  void* on_complete[3];
  RawVector<RawResource> requested;
};
static_assert(offsetof(RawOpContext, requested) == 64,
              "mxnet::OpContext's resources lie at byte 64");

// FResourceRequest and FComputeEx, as their callers see them.
using Request = RawVector<int32_t>* (*)(RawVector<int32_t>* result, const void* functor,
                                        const void* attrs);
using Compute = void (*)(const void* functor, const void* attrs, RawOpContext* context,
                         const RawVector<RawArray>* inputs, const void* requests,
                         const void* outputs);

// MXNet registers one function per device.
enum Device { kCpu, kGpu, kNumDevices };
constexpr const char* kComputes[kNumDevices] = {"FComputeEx<cpu>", "FComputeEx<gpu>"};

struct State {
  std::vector<Slot*> requests;  // [operator]
  std::vector<Slot*> computes[kNumDevices];
  // MXNet's, the same for all operators.
  Invoker request = nullptr;
  Invoker dispatchers[kNumDevices] = {};
  RawAny* flags = nullptr;    // TIsMKLDNN; null if no flag can be set
  uint32_t fetch = 0;         // the operator's index
  std::atomic<int> right{0};  // calls that had both resources in place
  std::atomic<int> wrong{0};
  std::atomic<int> misplaced{0};        // calls whose arrays were not on their contexts
  std::atomic<bool> is_checked{false};  // the layout can be trusted
  std::atomic<bool> is_viewing{false};  // that of arrays, too
};

State& GetState() {
  static auto* state = new State;
  return *state;
}

bool HasBoth(const RawVector<RawResource>& requested) {
  const RawResource* first = requested.begin;
  return requested.end - first == 2 && first[0].type == kTempSpace &&
         first[1].type == kParallelRandom;
}

// Lends resources while this object lives.
class Loan {
 public:
  explicit Loan(RawVector<RawResource>* requested)
      : requested_(requested), before_(*requested) {
    // The dispatcher reads the generator's states, a null pointer, and passes them to
    // the library; space would be allocated only if the library asked for it.
    static const uint64_t empty[512] = {};
    static RawResource lent[] = {{kTempSpace, 0, nullptr, 0, 0, empty},
                                 {kParallelRandom, 0, nullptr, 0, 0, empty}};
    *requested = {std::begin(lent), std::end(lent), std::end(lent)};
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;
  ~Loan() { *requested_ = before_; }

 private:
  RawVector<RawResource>* requested_;
  RawVector<RawResource> before_;
};

// Whether the inputs are arrays on the operator's context, as far as it can be seen.
bool HasOwnArrays(const RawVector<RawArray>* inputs, const RawContext& context) {
  const SafeReader reader;
  RawVector<RawArray> arrays;
  if (!reader.Read(inputs, &arrays, sizeof(arrays))) return false;
  const auto bytes =
      reinterpret_cast<uintptr_t>(arrays.end) - reinterpret_cast<uintptr_t>(arrays.begin);
  if (bytes == 0 || bytes % sizeof(RawArray) != 0) return false;
  return std::all_of(arrays.begin, arrays.end, [&](const RawArray& array) {
    tofu::RawChunk chunk;
    return reader.Read(array.chunk, &chunk, sizeof(chunk)) && chunk.context == context;
  });
}

// The context belongs to the node, and a node never runs twice at the same time.
template <Device device>
void ComputeWithLoan(const void* functor, const void* attrs, RawOpContext* context,
                     const RawVector<RawArray>* inputs, const void* requests,
                     const void* outputs) {
  State& state = GetState();
  const auto dispatch = reinterpret_cast<Compute>(state.dispatchers[device]);
  RawVector<RawResource>* requested = &context->requested;
  if (requested->begin != requested->end) {
    ++(HasBoth(*requested) ? state.right : state.wrong);
    if (!HasOwnArrays(inputs, context->context)) ++state.misplaced;
    return dispatch(functor, attrs, context, inputs, requests, outputs);
  }
  if (!state.is_checked) {
    ++state.wrong;
    return dispatch(functor, attrs, context, inputs, requests, outputs);
  }
  const Loan loan(requested);
  dispatch(functor, attrs, context, inputs, requests, outputs);
}

void ComputeFetchOnViews(const void* functor, const void* attrs, RawOpContext* context,
                         const RawVector<RawArray>* inputs, const void* requests,
                         const void* outputs) {
  if (!GetState().is_viewing) {
    return ComputeWithLoan<kCpu>(functor, attrs, context, inputs, requests, outputs);
  }
  const RemoteViews views(*inputs, context->context);
  ComputeWithLoan<kCpu>(functor, attrs, context, views.inputs(), requests, outputs);
}

RawVector<int32_t>* RequestNothing(RawVector<int32_t>* result, const void* /*functor*/,
                                   const void* /*attrs*/) {
  *result = {};
  return result;
}

// Whether a slot's function requests what 1.9.1 requests. It reads no attribute.
bool RequestsBoth(const Slot& slot) {
  RawVector<int32_t> requests;
  reinterpret_cast<Request>(slot.invoker)(
      &requests, static_cast<const void*>(slot.functor), nullptr);
  const bool both = std::equal(requests.begin, requests.end, std::begin(kRequests),
                               std::end(kRequests));
  ::operator delete(requests.begin);
  return both;
}

Slot* FilledSlot(RawOpMap<Slot>* map, uint32_t index) {
  if (!IsRegistered(*map, index)) return nullptr;
  Slot* slot = map->slots.begin + index;
  return slot->manager == nullptr || slot->invoker == nullptr ? nullptr : slot;
}

const Invoker kRequest = reinterpret_cast<Invoker>(RequestNothing);

Invoker OurCompute(Device device) {
  if (device == kGpu) return reinterpret_cast<Invoker>(ComputeWithLoan<kGpu>);
  return reinterpret_cast<Invoker>(ComputeFetchOnViews);
}

// Adds a slot if it holds MXNet's function, the same for all, or ours.
bool Collect(Slot* slot, bool is_ours, Invoker* mxnets, std::vector<Slot*>* slots) {
  if (slot == nullptr) return false;
  if (*mxnets == nullptr && !is_ours) *mxnets = slot->invoker;
  slots->push_back(slot);
  return is_ours || slot->invoker == *mxnets;
}

bool CollectRequest(Slot* slot, State* state) {
  const bool is_ours = slot != nullptr && slot->invoker == kRequest;
  return Collect(slot, is_ours, &state->request, &state->requests) &&
         (is_ours || RequestsBoth(*slot));
}

bool CollectCompute(Slot* slot, Device device, State* state) {
  const bool is_ours = slot != nullptr && slot->invoker == OurCompute(device);
  return Collect(slot, is_ours, &state->dispatchers[device], &state->computes[device]);
}

// The holder of the flags of operators that support oneDNN's layouts, or null. A build of
// MXNet without oneDNN has none.
RawAny* FindFlags(const Mxnet& mxnet, const SafeReader& reader,
                  const std::unordered_map<std::string, uint32_t>& indices) {
  RawAny* holder = FindHolder<Flag>(mxnet, reader, "TIsMKLDNN");
  const auto known = indices.find("Convolution");
  if (holder == nullptr || known == indices.end()) return nullptr;
  const auto& flags = *static_cast<const RawOpMap<Flag>*>(holder->content);
  if (!IsRegistered(flags, known->second)) return nullptr;
  if (!SlotOf(flags, known->second)->value) return nullptr;
  for (int i = 0; FindOp(i) != nullptr; ++i) {
    if (IsRegistered(flags, indices.at(FindOp(i)->name))) return nullptr;
  }
  return holder;
}

std::string Find(const char* path, State* state) {
  Mxnet mxnet;
  std::string problem = FindMxnet(path, &mxnet);
  if (!problem.empty()) return problem;
  const SafeReader reader;
  auto* const requests = FindOpMap<Slot>(mxnet, reader, "FResourceRequest");
  RawOpMap<Slot>* computes[kNumDevices];
  bool is_complete = requests != nullptr;
  for (const Device device : {kCpu, kGpu}) {
    computes[device] = FindOpMap<Slot>(mxnet, reader, kComputes[device]);
    is_complete = is_complete && computes[device] != nullptr;
  }
  const auto indices = OpIndices(mxnet, reader);
  if (!is_complete || indices.empty()) {
    return "the operator maps of this MXNet have an unexpected memory layout";
  }
  for (int i = 0; FindOp(i) != nullptr; ++i) {
    const std::string name = FindOp(i)->name;
    const auto found = indices.find(name);
    if (found == indices.end()) return "MXNet has no operator " + name;
    if (!CollectRequest(FilledSlot(requests, found->second), state)) {
      return name + " requests resources other than temporary space and a generator";
    }
    for (const Device device : {kCpu, kGpu}) {
      Slot* compute = FilledSlot(computes[device], found->second);
      if (!CollectCompute(compute, device, state)) {
        return name + " has an unexpected " + kComputes[device];
      }
    }
  }
  state->flags = FindFlags(mxnet, reader, indices);
  state->fetch = indices.at(tofu::kMultiFetchOp);
  return "";
}

void Replace(const std::vector<Slot*>& slots, Invoker invoker) {
  for (Slot* slot : slots) slot->invoker = invoker;
}

// Whether fetches see arrays as they are, and other workers' arrays through views.
void SetViewing(State* state, bool is_viewing) {
  state->is_viewing = is_viewing;
  if (state->flags == nullptr) return;
  tofu::SetFlag(state->flags, state->fetch, is_viewing);
}

}  // namespace

extern "C" {

// Looks the operators up in the libmxnet.so at `path`. From now on they run inside our
// function, still with the resources that MXNet lends them. Returns null, or what is
// wrong.
TOFU_EXPORT const char* TofuFreeOpen(const char* path) {
  static std::string problem;
  State& state = GetState();
  SetViewing(&state, false);
  state.flags = nullptr;
  state.requests.clear();
  for (std::vector<Slot*>& computes : state.computes) computes.clear();
  problem = Find(path, &state);
  if (!problem.empty()) {
    state.requests.clear();
    return problem.c_str();
  }
  for (const Device device : {kCpu, kGpu}) {
    for (int i = 0; FindOp(i) != nullptr; ++i) {
      state.computes[device][i]->invoker = OurCompute(device);
    }
  }
  return nullptr;
}

// The operators request nothing in graphs that are bound from now on. Call this right
// after TofuFreeOpen and a run of some of them. Returns their number; 0, without any
// change, unless those that ran had their resources in the expected place.
TOFU_EXPORT int TofuFreeBegin() {
  State& state = GetState();
  if (state.right == 0 || state.wrong != 0) return 0;
  state.is_checked = true;
  Replace(state.requests, kRequest);
  SetViewing(&state, state.flags != nullptr && state.misplaced == 0);
  return static_cast<int>(state.requests.size());
}

// Whether a fetch on a CPU context may read other workers' arrays.
TOFU_EXPORT int TofuFreeViews() { return GetState().is_viewing ? 1 : 0; }

// Restores the operators as MXNet registered them, for graphs that are bound from now
// on. Graphs that are already bound hold copies of our functions and run as before.
TOFU_EXPORT void TofuFreeEnd() {
  State& state = GetState();
  SetViewing(&state, false);
  if (state.request != nullptr) Replace(state.requests, state.request);
  for (const Device device : {kCpu, kGpu}) {
    if (state.dispatchers[device] == nullptr) continue;
    Replace(state.computes[device], state.dispatchers[device]);
  }
}

}  // extern "C"
