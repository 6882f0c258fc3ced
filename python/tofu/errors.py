"""Errors, split by blame.

Every message says where, what was found, what was expected and what to do.
"""

__all__ = [
    "ConfigError",
    "GradientError",
    "GraphError",
    "InconclusiveError",
    "InternalError",
    "MemoryLimitError",
    "PlanError",
    "TdlError",
    "TofuError",
]


class TofuError(Exception):
    """Base of all errors that tofu raises on purpose.

    A text is one line that every terminal and encoding can show, whatever the names and values
    in it contain.
    """

    def __str__(self) -> str:
        return "".join(
            character if character.isprintable() else repr(character)[1:-1]
            for character in super().__str__()
        )


class ConfigError(TofuError, ValueError):
    """An environment variable, option or argument has a value tofu cannot use."""


class MemoryLimitError(ConfigError):
    """No plan fits in the memory that a worker may take."""


class TdlError(TofuError):
    """An operator description is not valid TDL. Its text shows the lines of code in question."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class InconclusiveError(TofuError):
    """The analysis cannot decide; it never guesses."""


class GraphError(TofuError, ValueError):
    """A symbol JSON, graph or strategy table cannot be read."""


class PlanError(TofuError, ValueError):
    """A plan cannot be read, or does not fit the graph."""


class GradientError(TofuError, RuntimeError):
    """A gradient is not there: its memory was used for something else, or it is of a gradient."""


class ConnectionLostError(TofuError, RuntimeError):
    """Another process that takes part in the training has ended or does not answer."""


class InternalError(TofuError):
    """A broken invariant of tofu itself: please report it."""
