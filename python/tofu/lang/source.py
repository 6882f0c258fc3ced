"""The place of a description in its author's source, and errors that show it."""

from __future__ import annotations

import contextvars
import inspect
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Optional

from tofu.errors import TdlError

__all__ = ["Source", "current", "fail"]


class Source:
    """The name, file, line and text of a description.

    Attributes:
        name: the operator's name.
        location: "file:line" of the description.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        code = function.__code__
        self.name = name
        self.file = code.co_filename
        self.line = code.co_firstlineno
        self._function = function

    @property
    def location(self) -> str:
        """File and line; a shipped description's file is relative to the package."""
        parts = self.file.replace(os.sep, "/").split("/")
        short = "/".join(parts[-2:]) if "tdl" in parts[-2:-1] else self.file
        return f"{short}:{self.line}"

    def text(self, marked_line: Optional[int] = None) -> str:
        """The description's lines, with a pointer at the marked one."""
        try:
            lines, first = inspect.getsourcelines(self._function)
        except (OSError, TypeError):
            return "    (its source text is not available)"
        return "\n".join(
            f"{'  > ' if first + i == marked_line else '    '}{line.rstrip()}"
            for i, line in enumerate(lines)
        )

    def error(self, what: str, found: str, allowed: str, line: Optional[int] = None) -> TdlError:
        """A TdlError about one sub-expression.

        Args:
            what: the fault, in a few words.
            found: the sub-expression at fault.
            allowed: the constructs that the language allows there, and advice.
            line: the line at fault, or None for the whole description.
        """
        place = f"{self.file}:{line or self.line}"
        return TdlError(
            f"description of {self.name}: {what}\n"
            f"  in {place}\n{self.text(line)}\n"
            f"  found: {found}\n"
            f"  allowed: {allowed}"
        )


current: contextvars.ContextVar[Optional[Source]] = contextvars.ContextVar(
    "tofu_description", default=None
)


def fail(what: str, found: str, allowed: str, cause: Optional[BaseException] = None) -> TdlError:
    """A TdlError about the description being executed, at its current line.

    Args:
        what: the fault, in a few words.
        found: the sub-expression at fault.
        allowed: the constructs that the language allows there.
        cause: Python's own error, whose line is shown instead.
    """
    source = current.get()
    if source is None:
        return TdlError(f"{what}\n  found: {found}\n  allowed: {allowed}")
    line = _line_in(source.file) if cause is None else _line_of(source.file, cause)
    return source.error(what, found, allowed, line)


def _line_of(file: str, error: BaseException) -> Optional[int]:
    """The innermost line of the file that an error passed through."""
    line = None
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == file:
            line = step.tb_lineno
        step = step.tb_next
    return line


def _line_in(file: str) -> Optional[int]:
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == file:
            return frame.f_lineno
        frame = frame.f_back
    return None
