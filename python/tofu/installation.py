"""Names the packages to install if MXNet is missing or cannot be imported."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from importlib import metadata

from tofu.errors import ConfigError

__all__ = [
    "DISTRIBUTION",
    "IMPORT_ERRORS",
    "MXNET",
    "MissingMXNetError",
    "check_mxnet",
    "missing",
    "silence_numpy",
    "unusable",
]

DISTRIBUTION = "mxnet-tofu"
MXNET = "mxnet"
_NEEDED = "MXNet 1.9.1"
_INSTALL = "install tofu with the extra [mxnet-cpu], or install mxnet==1.9.1 and 'numpy<1.24'"
# A missing CUDA driver is an OSError, a NumPy that is too new an AttributeError.
IMPORT_ERRORS = (ImportError, OSError, AttributeError)


class MissingMXNetError(ConfigError, ImportError):
    """MXNet is not installed, or not usable; also an ImportError, for scripts that expect one."""


def missing(who: str) -> MissingMXNetError:
    """The error for a machine without MXNet; `who` needs it."""
    return MissingMXNetError(f"{who} needs {_NEEDED}, but there is no module mxnet; {_INSTALL}")


def unusable(who: str, error: BaseException) -> MissingMXNetError:
    """The error for an MXNet whose import raised `error`; `who` needs it."""
    return MissingMXNetError(
        f"{who} needs {_NEEDED}, but mxnet cannot be imported ({_first_line(error)}); {_INSTALL}"
    )


def __getattr__(name: str) -> str:
    if name == "__version__":  # looked up on first use, as that takes milliseconds
        return metadata.version(DISTRIBUTION)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def check_mxnet(who: str, *, load: bool) -> None:
    """Raise MissingMXNetError unless MXNet is installed and, with `load`, can be imported."""
    if importlib.util.find_spec(MXNET) is None:
        raise missing(who)
    if not load:
        return
    switch = os.environ.pop("MXNET_GRAPH_PASS", None)
    silence_numpy()
    try:
        importlib.import_module(MXNET)
    except IMPORT_ERRORS as error:
        raise unusable(who, error) from None
    finally:
        if switch is not None:
            os.environ["MXNET_GRAPH_PASS"] = switch


def silence_numpy() -> None:
    """Leave out NumPy's warning of a name that newer versions lack: MXNet's import then fails."""
    warnings.filterwarnings("ignore", "In the future `np.bool`", FutureWarning)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
