// The solver of problems with memory limits, and its progress reports, for Python.

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bindings/documents.h"
#include "solver/least_limit.h"
#include "solver/problem/read_problem.h"
#include "solver/solve.h"

namespace py = pybind11;

namespace tofu {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenSignals{50};

std::optional<int64_t> Known(int64_t number, int64_t unknown) {
  return number == unknown ? std::nullopt : std::optional(number);
}

Json OrNull(std::optional<int64_t> number) { return number ? Json(*number) : Json(); }

Deadline After(double seconds) {
  constexpr double kLongest = 1e9;  // beyond it there is no deadline
  if (seconds >= kLongest) return Deadline::max();
  return Clock::now() + std::chrono::duration_cast<Deadline::duration>(
                            std::chrono::duration<double>(seconds));
}

const char* NameOf(SolveStatus status) {
  switch (status) {
    case SolveStatus::kOptimal:
      return "optimal";
    case SolveStatus::kFeasible:
      return "feasible";
    case SolveStatus::kInfeasible:
      return "infeasible";
    case SolveStatus::kUnknown:
      return "unknown";
  }
  return "unknown";
}

// Reports progress to Python, and checks for Ctrl-C regularly.
class Listener {
 public:
  explicit Listener(const std::optional<py::function>& callback) : callback_(callback) {}

  bool Hear(const SolveProgress& progress) {
    const bool is_new = progress.values != nullptr || progress.bound > bound_;
    bound_ = std::max(bound_, progress.bound);
    const Clock::time_point now = Clock::now();
    if (!(is_new && callback_) && now < next_look_) return true;
    next_look_ = now + kBetweenSignals;
    const py::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (!is_new || !callback_) return true;
    const py::object answer =
        (*callback_)(Known(progress.cost, kForbidden), progress.bound);
    return answer.is_none() || answer.cast<bool>();
  }

 private:
  const std::optional<py::function>& callback_;
  int64_t bound_ = -1;
  Clock::time_point next_look_ = Clock::now();
};

Json LeastLimitJson(const ProblemText& read, Deadline deadline, int threads) {
  const LeastLimit found = FindLeastLimit(read.problem, deadline, threads);
  if (!found.exists) return nullptr;
  Json needs = Json::array();
  for (const LeastLimit::Need& need : found.needs) {
    needs.push_back(Json::array({need.variable, need.bytes}));
  }
  return {{"bytes", OrNull(Known(found.least, kUnlimited))},
          {"bound", found.bound},
          {"moment", read.moments.empty() ? 0 : read.moments[found.moment]},
          {"needs", std::move(needs)}};
}

std::string SolveText(const std::string& text, std::optional<int64_t> limit,
                      double time_limit_s, int threads,
                      const std::optional<py::function>& on_progress) {
  const py::gil_scoped_release unlock;
  ProblemText read = ReadProblem(text);
  ChoiceProblem& problem = read.problem;
  if (limit) problem.SetLimit(*limit < 0 ? kUnlimited : *limit);
  Listener listener(on_progress);
  SolveOptions options;
  options.threads = threads;
  options.on_progress = [&](const SolveProgress& progress) {
    return listener.Hear(progress);
  };
  options.deadline = After(time_limit_s);
  const std::clock_t begin = std::clock();
  const SolveResult result = Solve(problem, options);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const bool found = result.cost < kForbidden;
  Json json = {{"format", "tofu-solution"},
               {"version", 1},
               {"status", NameOf(result.status)},
               {"cost", OrNull(Known(result.cost, kForbidden))},
               {"bound", OrNull(Known(result.bound, kForbidden))},
               {"limit", OrNull(Known(problem.Limit(), kUnlimited))},
               {"peak_bytes", found ? Json(problem.PeakBytes(result.values)) : Json()},
               {"values", found ? Json(result.values) : Json()},
               {"nodes", result.nodes},
               {"cpu_seconds", seconds}};
  if (result.status == SolveStatus::kInfeasible) {
    json["least_limit"] = LeastLimitJson(read, After(time_limit_s), threads);
  }
  return json.dump();
}

}  // namespace

void BindSolver(py::module_* module) {
  module->def("solve", &SolveText, py::arg("problem"), py::kw_only(),
              py::arg("limit") = py::none(), py::arg("time_limit_s") = 60.0,
              py::arg("threads") = 1, py::arg("on_progress") = py::none(),
              "Solve a problem with a memory limit (JSON).");
}

}  // namespace tofu
