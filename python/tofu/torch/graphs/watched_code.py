"""Finds what the code of a module reads besides its attributes: globals, closures, its classes.

Code of libraries is taken to stay as it is, but for the classes of modules, which scripts patch.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any, Callable

import torch

__all__ = [
    "Read", "asks_for_types", "function_of", "is_watched", "reads_of_class", "reads_of_function",
]  # fmt: skip

# What is read: its name, a function that reads it again, and its value.
Read = tuple[str, Callable[[], Any], Any]
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_CONSTANTS = (bool, int, float, str, type(None))
_BASES = (object, torch.nn.Module)


def reads_of_class(kind: type) -> Iterator[Read]:
    """The attributes of a class that its instances may read, methods and properties included.

    Of a module's class, those that ``forward`` names, or a method that ``forward`` names, and the
    numbers and texts of a script's class.
    """
    is_module = issubclass(kind, torch.nn.Module)
    if not is_module and _is_of_library(kind.__module__):
        return
    names = _names_from_forward(kind) if is_module else None
    for base in kind.__mro__:
        if base not in _BASES and (is_module or not _is_of_library(base.__module__)):
            for name, value in vars(base).items():
                wanted = name[:2] != "__" or name == "__call__"
                is_value = isinstance(value, _CONSTANTS) and not _is_of_library(base.__module__)
                if wanted and (names is None or name in names or is_value):
                    get = functools.partial(vars(base).get, name)
                    yield f"{base.__name__}.{name}", get, value


def reads_of_function(function: Any) -> Iterator[Read]:
    """The code, defaults, closure and globals that a function of a script reads."""
    yield "code", functools.partial(getattr, function, "__code__"), function.__code__
    if hasattr(function, "__wrapped__"):  # by a decorator, perhaps a library's
        yield "wrapped", functools.partial(getattr, function, "__wrapped__"), function.__wrapped__
    if _is_file_of_library(function.__code__.co_filename):
        return
    for name in ("__defaults__", "__kwdefaults__"):
        yield name, functools.partial(getattr, function, name), getattr(function, name)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        get = functools.partial(getattr, cell, "cell_contents", None)
        yield name, get, get()
    yield "__dict__", functools.partial(getattr, function, "__dict__"), function.__dict__
    names = set(_names(function.__code__))
    for name in sorted(names & function.__globals__.keys()):
        value = function.__globals__[name]
        if not isinstance(value, types.ModuleType):
            yield name, functools.partial(function.__globals__.get, name), value
        elif not _is_of_library(value.__name__):  # a module of the script, such as its settings
            for own in sorted(names & vars(value).keys()):
                if not isinstance(vars(value)[own], types.ModuleType):
                    get = functools.partial(vars(value).get, own)
                    yield f"{name}.{own}", get, vars(value)[own]


def function_of(value: Any) -> Any:
    """The function behind a method, a property or a class's attribute; None if there is none."""
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, (types.MethodType, classmethod, staticmethod)):
        value = value.__func__
    return value if isinstance(value, types.FunctionType) else None


@functools.lru_cache(maxsize=1 << 12)
def asks_for_types(code: types.CodeType) -> bool:
    """Whether the code of a script's function calls ``type``, which tells numbers from ours."""
    if _is_file_of_library(code.co_filename) or "type" not in _names(code):
        return False
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return any(map(asks_for_types, inner)) or any(
        step.argval == "type" and step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        for step in dis.get_instructions(code)
    )


def is_watched(called: Any) -> bool:
    """Whether everything that a function or an object reads or changes when called is noticed.

    So it is for a script's code, and for functions of libraries that have no state of their own.
    """
    if isinstance(called, functools.partial):
        return is_watched(called.func)
    function = function_of(called)
    if function is None:
        function = function_of(type(called).__call__)
    if function is None:
        return False
    own = getattr(called, "__self__", None)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    stateless = own is None and all(isinstance(x, _CONSTANTS) or is_watched(x) for x in cells)
    return stateless or not _is_file_of_library(function.__code__.co_filename)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _names(each)


@functools.lru_cache(maxsize=1 << 10)
def _names_from_forward(kind: type) -> frozenset[str]:
    """The names in ``forward``, and in the methods and properties whose names are among them."""
    found: set[str] = set()
    new = {"forward"}
    while new:
        found |= new
        values = [vars(base).get(name) for base in kind.__mro__ for name in new]
        functions = [inspect.unwrap(f) for f in map(function_of, values) if f is not None]
        new = {name for f in functions for name in _names(f.__code__)} - found
    return frozenset(found)


@functools.lru_cache(maxsize=1 << 12)
def _is_of_library(module: str) -> bool:
    """Whether a module of Python, by its name, is no script's."""
    if module.partition(".")[0] in (*sys.stdlib_module_names, "torch", "tofu"):
        return module != "__main__"
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and _is_file_of_library(file)


def _is_file_of_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or file[:1] == "<"
