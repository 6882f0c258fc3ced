// One worker's program for Python.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/documents.h"
#include "bindings/interruptible.h"
#include "passes/divide/outline_exchange.h"
#include "passes/divide/plan_stage.h"
#include "passes/divide/worker_program.h"

namespace py = pybind11;

namespace tofu {
namespace {

using Kind = ProgramStep::Kind;

std::shared_ptr<WorkerProgram> Program(const TablePlan& plan, int worker,
                                       int64_t spare_bytes) {
  const Interruptible interruptible;
  return std::make_shared<WorkerProgram>(
      MakeWorkerProgram(plan.graph(), plan.strategies(), plan.plan, worker,
                        {std::nullopt, true, spare_bytes, false}));
}

std::string KindName(const ProgramStep& step) {
  switch (step.kind) {
    case Kind::kVariable:
      return "variable";
    case Kind::kRun:
      return "run";
    case Kind::kConstant:
      return "constant";
    case Kind::kFetch:
      break;
  }
  return "fetch";
}

std::string ReducerName(const ProgramStep& step) {
  switch (step.spec.reduce) {
    case Reducer::kLogSumExp:
      return "logsumexp";
    case Reducer::kMax:
      return "max";
    case Reducer::kMin:
      return "min";
    case Reducer::kProd:
      return "prod";
    case Reducer::kWeighted:
      return "weighted";
    case Reducer::kApart:
      return "apart";
    case Reducer::kSum:
      break;
  }
  return "sum";
}

py::tuple Array(ArrayId array) { return py::make_tuple(array.step, array.output); }

py::list Inputs(const ProgramStep& step) {
  py::list inputs;
  for (ArrayId input : step.inputs) inputs.append(Array(input));
  return inputs;
}

py::list Outputs(const ProgramStep& step) {
  py::list outputs;
  for (size_t i = 0; i < step.shapes.size(); ++i) {
    outputs.append(py::make_tuple(ShapeTuple(step.shapes[i]), step.dtypes[i]));
  }
  return outputs;
}

// (worker or -1, term, begin in the source, begin in the region, extents)
py::list Records(const std::vector<FetchPiece>& found) {
  py::list pieces;
  for (const FetchPiece& piece : found) {
    const Shape& from = piece.source == kFill ? piece.to.begin : piece.from.begin;
    pieces.append(py::make_tuple(piece.source, piece.term, ShapeTuple(from),
                                 ShapeTuple(piece.to.begin),
                                 ShapeTuple(piece.to.Extents())));
  }
  return pieces;
}

bool HasPieces(const ProgramStep& step) {
  return step.takes_part && step.stage != nullptr;
}

py::list PieceRecords(const ProgramStep& step) {
  return HasPieces(step) ? Records(PiecesOf(step).pieces) : py::list();
}

py::list OutlineRecords(const ProgramStep& step) {
  return HasPieces(step) ? Records(OutlineTerms(step)) : py::list();
}

// (number of the fetch, begin in the array, extents, how many alike)
py::list SentAlone(const ExchangeOutline& outline) {
  py::list sent;
  for (const SingleMessages& each : outline.alone) {
    sent.append(py::make_tuple(each.fetch, ShapeTuple(each.box.begin),
                               ShapeTuple(each.box.Extents()), each.count));
  }
  return sent;
}

// (reader, begin in the array, extents)
py::list Sent(const ProgramStep& step) {
  py::list sent;
  if (!step.sends) return sent;
  for (const SentPiece& piece : PlanSent(*step.stage, step.spec.worker)) {
    sent.append(py::make_tuple(piece.reader, ShapeTuple(piece.box.begin),
                               ShapeTuple(piece.box.Extents())));
  }
  return sent;
}

py::list Senders(const ProgramStep& step) {
  py::list pattern;
  for (const SenderPattern& each : step.pattern) {
    pattern.append(py::make_tuple(each.differing, each.senders));
  }
  return pattern;
}

// Steps stay in their program.
std::vector<std::shared_ptr<ProgramStep>> Steps(
    const std::shared_ptr<WorkerProgram>& program) {
  std::vector<std::shared_ptr<ProgramStep>> steps;
  for (ProgramStep& step : program->steps) steps.emplace_back(program, &step);
  return steps;
}

// (role, array, the step that makes it on some worker, shape, cuts)
py::list Heads(const WorkerProgram& program) {
  py::list heads;
  for (const ProgramHead& head : program.heads) {
    heads.append(py::make_tuple(head.role, Array(head.array), head.made_by,
                                ShapeTuple(head.shape), head.cuts));
  }
  return heads;
}

int64_t FetchedBytes(const WorkerProgram& program) {
  int64_t bytes = 0;
  for (const ProgramStep& step : program.steps) bytes += step.received_bytes;
  return bytes;
}

}  // namespace

void BindProgram(py::module_* module) {
  py::class_<ProgramStep, std::shared_ptr<ProgramStep>>(*module, "ProgramStep",
                                                        "A step of a worker's program.")
      .def_property_readonly("kind", &KindName)
      .def_readonly("name", &ProgramStep::name)
      .def_readonly("node", &ProgramStep::node)
      .def_readonly("takes_part", &ProgramStep::takes_part)
      .def_property_readonly("attrs",
                             [](const ProgramStep& step) { return step.attrs.map(); })
      .def_property_readonly("inputs", &Inputs)
      .def_property_readonly("outputs", &Outputs)
      .def_readonly("after", &ProgramStep::after)
      .def_property_readonly("pieces", &PieceRecords)
      .def_property_readonly("reduction", &ReducerName)
      .def_property_readonly("terms",
                             [](const ProgramStep& step) { return step.spec.num_terms; })
      .def_property_readonly("fill",
                             [](const ProgramStep& step) { return step.spec.fill; })
      .def_property_readonly("held",
                             [](const ProgramStep& step) { return Array(step.held); })
      .def_property_readonly("source",
                             [](const ProgramStep& step) { return Array(step.source); })
      .def_readonly("weighted_dims", &ProgramStep::weighted_dims)
      .def_readonly("receives", &ProgramStep::receives)
      .def_readonly("sends", &ProgramStep::sends)
      .def_property_readonly("outline", &OutlineRecords)
      .def_property_readonly("sent", &Sent)
      .def_readonly("received_bytes", &ProgramStep::received_bytes)
      .def_property_readonly("pattern", &Senders);
  py::class_<ExchangeOutline>(*module, "ExchangeOutline", "The messages of an exchange.")
      .def_readonly("packed_bytes", &ExchangeOutline::packed_bytes)
      .def_property_readonly("alone", &SentAlone)
      .def_readonly("received_bytes", &ExchangeOutline::received_bytes)
      .def_readonly("apart", &ExchangeOutline::apart);
  py::class_<WorkerProgram, std::shared_ptr<WorkerProgram>>(*module, "WorkerProgram",
                                                            "The program of one worker.")
      .def_readonly("worker", &WorkerProgram::worker)
      .def_property_readonly("steps", &Steps)
      .def("outline", &OutlineExchange, py::arg("fetches"), py::arg("forms"))
      .def_property_readonly("heads", &Heads)
      .def_property_readonly("fetched_bytes", &FetchedBytes)
      .def_readonly("shared_bytes", &WorkerProgram::shared_bytes);
  module->def("worker_program", &Program, py::arg("plan"), py::arg("worker"),
              py::kw_only(), py::arg("spare_bytes") = 0,
              "Generate the program of one worker of a plan.");
}

}  // namespace tofu
