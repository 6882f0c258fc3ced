#include "passes/simulate/event_loop.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "base/error.h"
#include "passes/simulate/link_shares.h"

namespace tofu {
namespace {

enum class Phase { kHost, kCompute, kLatency, kFlow, kDone };

struct Running {
  int operation = 0;
  Phase phase = Phase::kHost;
  int flow = 0;     // number of the flow in its operation
  double left = 0;  // remaining seconds without sharing, or bytes
  double rate = 1;
};

// The operations that a device's threads take.
struct Queue {
  std::deque<int> waiting;
  int idle = 0;  // idle threads
};

class EventLoop {
 public:
  EventLoop(const Operations& operations, const Machine& machine)
      : all_(operations), machine_(machine), shares_(machine) {
    const size_t count = all_.operations.size();
    waits_for_ = all_.num_predecessors;
    result_.ran.resize(count);
    result_.device_busy_s.assign(static_cast<size_t>(machine.device.count), 0);
    on_device_.assign(static_cast<size_t>(machine.device.count), 0);
    computing_.assign(static_cast<size_t>(machine.device.count), 0);
    compute_.assign(static_cast<size_t>(machine.device.count), {});
    copy_.assign(static_cast<size_t>(machine.device.count), {});
    for (int number = 0; number < machine.device.count; ++number) {
      compute_[number].idle = machine.DeviceOf(number).threads;
      copy_[number].idle = machine.DeviceOf(number).copy_threads;
    }
    push_left_ = machine.host.push_s;
  }

  Execution Run() {
    const int count = static_cast<int>(all_.operations.size());
    while (machine_.host.push_s == 0 && pushed_ < count) Push();
    while (done_ < count) {
      TOFU_CHECK(!running_.empty() || pushed_ < count)
          << count - done_ << " operations wait for each other";
      SetRates();
      Advance(TimeToNextEvent());
    }
    result_.step_s = now_;
    for (size_t level = 0; level < shares_.groups().size(); ++level) {
      for (size_t group = 0; group < shares_.groups()[level].size(); ++group) {
        const LinkShares::Group& use = shares_.groups()[level][group];
        if (use.bytes == 0) continue;
        result_.links.push_back(
            {static_cast<int>(level), static_cast<int>(group), use.busy_s, use.bytes});
      }
    }
    return std::move(result_);
  }

 private:
  bool IsPushing() const { return pushed_ < static_cast<int>(all_.operations.size()); }
  const Operation& operation(const Running& running) const {
    return all_.operations[running.operation];
  }
  const Flow& flow(const Running& running) const {
    return all_.flows[operation(running).first_flow + running.flow];
  }

  // --- rates ---

  bool UsesCore(const Running& running) const {
    return !machine_.device.is_gpu || running.phase == Phase::kHost;
  }

  void SetRates() {
    int threads = IsPushing() ? 1 : 0;
    for (const Running& running : running_) threads += UsesCore(running) ? 1 : 0;
    const double speed = machine_.HostSpeed(threads);
    push_rate_ = speed;
    for (Running& running : running_) {
      running.rate = UsesCore(running) ? speed : 1;
      if (running.phase == Phase::kCompute && machine_.device.is_gpu) {
        running.rate /= computing_[operation(running).device];
      } else if (running.phase == Phase::kFlow) {
        running.rate *= shares_.Rate(flow(running));
      }
    }
  }

  double TimeToNextEvent() const {
    double least =
        IsPushing() ? push_left_ / push_rate_ : std::numeric_limits<double>::infinity();
    for (const Running& running : running_) {
      least = std::min(least, running.left / running.rate);
    }
    return least;
  }

  // --- time ---

  void Advance(double seconds) {
    // The relative rounding error within which operations end now.
    constexpr double kRounding = 1e-9;
    now_ += seconds;
    shares_.Advance(seconds);
    for (size_t device = 0; device < on_device_.size(); ++device) {
      if (on_device_[device] > 0) result_.device_busy_s[device] += seconds;
    }
    const bool has_pushed =
        IsPushing() && push_left_ <= seconds * push_rate_ * (1 + kRounding);
    push_left_ -= seconds * push_rate_;
    for (Running& running : running_) {
      Account(running, seconds);
      const double done = seconds * running.rate;
      running.left = running.left <= done * (1 + kRounding) ? 0 : running.left - done;
      if (running.left == 0 && NextPhase(&running))
        ended_now_.push_back(running.operation);
    }
    running_.erase(
        std::remove_if(running_.begin(), running_.end(),
                       [](const Running& r) { return r.phase == Phase::kDone; }),
        running_.end());
    Settle();
    if (has_pushed) Push();
  }

  void Account(const Running& running, double seconds) {
    Ran& ran = result_.ran[running.operation];
    switch (running.phase) {
      case Phase::kHost:
        ran.host_s += seconds;
        break;
      case Phase::kCompute:
        ran.compute_s += seconds;
        break;
      default:
        ran.link_s += seconds;
    }
  }

  // Advances to the next phase that takes time. Returns true if there is none.
  bool NextPhase(Running* running) {
    while (running->left == 0) {
      const Operation& own = operation(*running);
      switch (running->phase) {
        case Phase::kHost:
          running->phase = Phase::kCompute;
          running->left = own.compute_s;
          if (running->left > 0) ++computing_[own.device];
          break;
        case Phase::kCompute:
          if (own.compute_s > 0) --computing_[own.device];
          StartFlow(running);
          break;
        case Phase::kLatency:
          running->phase = Phase::kFlow;
          running->left = flow(*running).bytes;
          shares_.Begin(flow(*running));
          break;
        case Phase::kFlow:
          shares_.End(flow(*running));
          ++running->flow;
          StartFlow(running);
          break;
        case Phase::kDone:
          break;
      }
      if (running->phase == Phase::kDone) return true;
    }
    return false;
  }

  void StartFlow(Running* running) {
    if (running->flow == operation(*running).num_flows) {
      running->phase = Phase::kDone;
      return;
    }
    const Flow& next = flow(*running);
    running->phase = Phase::kLatency;
    const int level = machine_.LevelBetween(next.from, next.to);
    running->left = std::max(machine_.LinkOf(next.from, level).latency_s,
                             machine_.LinkOf(next.to, level).latency_s);
  }

  // --- operations ---

  void Push() {
    const int operation = pushed_++;
    push_left_ = machine_.host.push_s;
    result_.push_s = now_;
    if (waits_for_[operation] == 0) Enqueue(operation, kScript);
    Settle();
  }

  void Enqueue(int operation, int cause) {
    result_.ran[operation].cause = cause;
    Queue& queue = QueueOf(operation);
    queue.waiting.push_back(operation);
    Start(&queue, cause);
  }

  Queue& QueueOf(int operation) {
    const Operation& own = all_.operations[operation];
    return own.on_copy_thread ? copy_[own.device] : compute_[own.device];
  }

  // Lets an idle thread take the first operation; `cause` has just allowed it.
  void Start(Queue* queue, int cause) {
    if (queue->idle == 0 || queue->waiting.empty()) return;
    const int operation = queue->waiting.front();
    queue->waiting.pop_front();
    --queue->idle;
    const Operation& own = all_.operations[operation];
    Ran& ran = result_.ran[operation];
    ran.begin_s = now_;
    ran.cause = cause;
    if (!own.on_copy_thread) ++on_device_[own.device];
    Running running;
    running.operation = operation;
    running.left = own.host_s;
    if (running.left == 0 && NextPhase(&running)) {
      ended_now_.push_back(operation);
    } else {
      running_.push_back(running);
    }
  }

  // Ends all operations that have ended, and the operations that they start and that take
  // no time.
  void Settle() {
    while (!ended_now_.empty()) {
      const int operation = ended_now_.back();
      ended_now_.pop_back();
      const Operation& own = all_.operations[operation];
      result_.ran[operation].end_s = now_;
      ++done_;
      if (!own.on_copy_thread) --on_device_[own.device];
      for (int i = all_.first_successor[operation];
           i < all_.first_successor[operation + 1]; ++i) {
        const int next = all_.successors[i];
        if (--waits_for_[next] == 0 && next < pushed_) Enqueue(next, operation);
      }
      Queue& queue = QueueOf(operation);
      ++queue.idle;
      Start(&queue, operation);
    }
  }

  const Operations& all_;
  const Machine& machine_;
  LinkShares shares_;
  double now_ = 0;
  int pushed_ = 0;
  double push_left_ = 0;
  double push_rate_ = 1;
  int done_ = 0;
  std::vector<int> waits_for_;  // [operation]: predecessors that have not ended
  std::vector<Running> running_;
  std::vector<int> ended_now_;  // operations that Settle has yet to end
  std::vector<int> on_device_;  // [device]: operations that run, without copies
  std::vector<int> computing_;  // [device]: those in their compute phase
  std::vector<Queue> compute_;  // [device]
  std::vector<Queue> copy_;     // [device]
  Execution result_;
};

}  // namespace

Execution RunOperations(const Operations& operations, const Machine& machine) {
  return EventLoop(operations, machine).Run();
}

}  // namespace tofu
