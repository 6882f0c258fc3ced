"""Runs a script, with MXNet's profiler on in some training steps.

    python -m tofu.trace.profiled_run OUT SKIP STEPS SCRIPT [ARGS]...

``MXNET_GRAPH_PASS=tofu`` is in the environment. OUT gets a JSON document: the summary's numbers and
the trace events (tofu.trace.timeline). The script ends after the last step.
"""

from __future__ import annotations

import functools
import json
import runpy
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Optional

from tofu.trace.labels import Labels, preload
from tofu.trace.profile import read_profile
from tofu.trace.timeline import Interval, Timeline
from tofu.uncaught import INTERRUPTED

__all__ = ["main"]

FAILED = 1  # exit status of a script that raises
_EXIT_S = 10  # the most seconds that ending may take


class _Ended(BaseException):
    """Ends the script after the last step."""


class _Recorder:
    """Counts the training steps, and profiles some.

    Attributes:
        seen: the number of steps that have ended.
        steps: begin and end of the profiled steps, in microseconds.
    """

    def __init__(self, skip: int, steps: int, labels: Labels, profile: Path) -> None:
        self.seen = 0
        self.steps: list[Interval] = []
        self._skip = skip
        self._steps_to_profile = steps
        self._labels = labels
        self._profile = profile
        self._since = 0.0

    def start(self) -> None:
        """Begin to profile, if no step is to be skipped."""
        from mxnet import profiler

        profiler.set_config(
            profile_symbolic=True, profile_imperative=True, filename=str(self._profile)
        )
        self._begin_if_due()

    def update(self, original: Any) -> Any:
        """Wrap the method that a script calls at the end of a step."""

        @functools.wraps(original)
        def step(trainer: Any, *args: Any, **options: Any) -> Any:
            result = original(trainer, *args, **options)
            self._ended()
            return result

        return step

    def _ended(self) -> None:
        import mxnet as mx

        self.seen += 1
        number = self.seen - self._skip
        if number == self._steps_to_profile:
            mx.nd.waitall()  # the last step is over when its operators are
        if number >= 1:
            now = _now()
            self.steps.append((self._since, now))
            self._since = now
        if number == self._steps_to_profile:
            self._stop()
            raise _Ended
        self._begin_if_due()

    def _begin_if_due(self) -> None:
        import mxnet as mx
        from mxnet import profiler

        from tofu.mx.extension import label_nodes

        if self._skip - 1 <= self.seen <= self._skip:
            # A step early, as the first one with labels reads the executors' texts.
            label_nodes(self._labels)
        if self.seen == self._skip:
            mx.nd.waitall()
            profiler.set_state("run")
            self._since = _now()

    def _stop(self) -> None:
        from mxnet import profiler

        from tofu.mx.extension import label_nodes

        profiler.set_state("stop")
        label_nodes(None)
        profiler.dump()

    def timeline(self) -> Optional[Timeline]:
        """Timeline of the profiled steps; None if no operator of a partitioned graph ran."""
        document = json.loads(self._profile.read_text(encoding="utf-8"))
        devices, operators = read_profile(document, self._labels.node)
        return Timeline.of(operators, self.steps, devices) if devices else None


def _now() -> float:
    """The profiler's clock, in microseconds."""
    return time.time_ns() / 1000


def main() -> None:
    """Run the script in this process and write the document."""
    out, skip, steps, script, *args = sys.argv[1:]
    library = preload()
    from mxnet import gluon

    with tempfile.TemporaryDirectory() as folder:
        recorder = _Recorder(int(skip), int(steps), Labels(library), Path(folder) / "profile.json")
        before = gluon.Trainer.step, gluon.Trainer.update
        gluon.Trainer.step, gluon.Trainer.update = map(recorder.update, before)
        sys.argv = [script, *args]
        sys.path[0] = str(Path(script).resolve().parent)
        try:
            recorder.start()
            runpy.run_path(script, run_name="__main__")
        except _Ended:
            pass
        except SystemExit:
            if len(recorder.steps) < int(steps):
                _write(out, recorder, None)
            raise
        except Exception as error:
            # Python prints the error's own frames.
            error.__traceback__ = _of_script(error, script)
            sys.excepthook(type(error), error, error.__traceback__)
            sys.stderr.flush()
            raise SystemExit(FAILED) from None
        _write(out, recorder, recorder.timeline() if len(recorder.steps) == int(steps) else None)
    _limit_exit()


def _limit_exit() -> None:
    """End this process soon even if MXNet's threads hang, as everything is written."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_EXIT_S)


def _of_script(error: Exception, script: str) -> Optional[TracebackType]:
    """The traceback from the script's first frame on, as ``python SCRIPT`` would show it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != script:
        frames = frames.tb_next
    return frames or (None if isinstance(error, SyntaxError) else error.__traceback__)


def _write(out: str, recorder: _Recorder, timeline: Optional[Timeline]) -> None:
    document: dict[str, Any] = {"seen": recorder.seen}
    if timeline is not None:
        busiest = timeline.busiest
        document.update(
            duration=timeline.duration,
            workers=timeline.workers,
            shares=[vars(share) for share in timeline.shares],
            busiest=busiest,
            longest=timeline.longest(busiest),
            trace=timeline.to_document(f"tofu trace {Path(sys.argv[0]).name}"),
        )
    Path(out).write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # tofu trace, which gets it too, ends quietly
        raise SystemExit(INTERRUPTED) from None
