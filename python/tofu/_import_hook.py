"""The switch: enables tofu when a script imports MXNet.

A ``.pth`` file calls ``install()`` at interpreter start if ``MXNET_GRAPH_PASS`` is set, and
otherwise installs a one-line finder, which calls ``find_spec()`` if the script itself sets
the variable before it imports MXNet. If not, this module is never loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Optional

__all__ = ["find_spec", "install"]

TARGET = "mxnet"


class _Finder:
    """Finds MXNet like Python's own finders, but with a loader that then enables tofu."""

    def __init__(self) -> None:
        self._busy = False
        self.then: Callable[[], None] = _nothing

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """Return the spec of `mxnet`; None for other modules, so Python asks other finders.

        Raises:
            ConfigError: a variable of tofu has a value it cannot use.
        """
        if name != TARGET or self._busy:
            return None
        from tofu import cuda_libraries, exit_status, server_process, uncaught
        from tofu.config import MXNET_ENVIRONMENT, Config, graph_pass

        uncaught.end_runs()
        if graph_pass() is None:
            return None
        Config.from_environment()
        role = os.environ.get("DMLC_ROLE")
        if role in server_process.ROLES:
            server_process.become(role)
        exit_status.remember()
        if role == "worker":
            for variable, value in server_process.HEARTBEATS.items():
                os.environ.setdefault(variable, value)
        self._busy = True
        try:
            spec = _spec_of(name, path, target)
        finally:
            self._busy = False
        if spec is not None and spec.loader is not None:
            cuda_libraries.preload()
            os.environ.update(MXNET_ENVIRONMENT)
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


class _Loader:
    """Loads MXNet with its own loader, then enables tofu."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        """Let the real loader create the module."""
        module: Optional[ModuleType] = self._real.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run MXNet's own code, then tofu's."""
        module.__loader__ = self._real
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        from tofu import installation

        installation.silence_numpy()
        try:
            self._real.exec_module(module)
        except installation.IMPORT_ERRORS as error:
            raise installation.unusable("tofu", error) from error
        _enable()


def _enable() -> None:
    from tofu.gluon import switch

    switch.enable()
    if _FINDER.then is _nothing:  # else tofu itself runs the script
        switch.look_back()
    _FINDER.then()


def _nothing() -> None:
    pass


_FINDER = _Finder()  # a single one, to detect its own recursive calls


def find_spec(
    name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
) -> Optional[ModuleSpec]:
    """The spec of `mxnet` if the switch is on; see ``_Finder.find_spec``."""
    return _FINDER.find_spec(name, path, target)


def install(then: Optional[Callable[[], None]] = None) -> None:
    """Enable tofu when MXNet is imported, or at once if it already is; idempotent.

    then: called once tofu is enabled.
    """
    _FINDER.then = then or _nothing
    if _FINDER in sys.meta_path:
        return
    if os.environ.get("DMLC_ROLE") == "worker":
        from tofu import exit_status

        exit_status.remember()  # before the script imports it by name
    sys.meta_path.insert(0, _FINDER)
    if TARGET in sys.modules:
        from tofu import uncaught
        from tofu.config import graph_pass

        uncaught.end_runs()
        if graph_pass() is not None:
            _enable()


def _spec_of(
    name: str, path: Optional[Sequence[str]], target: Optional[ModuleType]
) -> Optional[ModuleSpec]:
    """The spec according to the finders after ours."""
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        if find is None or isinstance(finder, _Finder):
            continue
        spec: Optional[ModuleSpec] = find(name, path, target)
        if spec is not None:
            return spec
    return None
