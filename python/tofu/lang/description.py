"""``tofu.op`` turns a function of tensors into an operator's description."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union, overload

from tofu.errors import TdlError
from tofu.lang.handles import TensorHandle
from tofu.lang.shapes import KnownShape, ShapeUse
from tofu.lang.source import Source
from tofu.lang.tracing import Shape, Trace, execute

__all__ = ["Description", "Rewrite", "lookup", "op", "parse_attribute", "registered"]

_REGISTRY: dict[str, Description] = {}
_NAMED: set[str] = set()  # operators whose descriptions give a name explicitly
_OUT_SHAPES = "out_shapes"
_DIGITS = "0123456789"
_SHIPPED = "tofu.tdl."


@dataclass(frozen=True)
class Rewrite:
    """An attribute whose value changes in a part of the operator.

    Attributes:
        name: the attribute.
        value: ``{"size": variable}``, multiplied by ``"times": number`` if given,
            ``{"sizes": [variable, ...]}``, ``{"begin": variable}`` (the variable's first value
            in the part), ``{"const": text}`` or ``{"output_shape": number}``.
        when: the variables whose splitting changes it. None: the variables of the value,
            or every variable if it has none.
    """

    name: str
    value: Mapping[str, Any]
    when: Optional[tuple[str, ...]] = None


Rewrites = Union[Sequence[Rewrite], Callable[..., Sequence[Rewrite]]]


class Description:
    """An operator's description, made by ``tofu.op``.

    Attributes:
        names: the described operators.
        source: its place in the source code.
        random: whether two workers that both compute the whole get different results.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        names: tuple[str, ...],
        rewrites: Rewrites,
        random: bool,
        variables: Optional[Mapping[str, str]] = None,
        stateful: bool = False,
    ) -> None:
        self.names = names
        self.source = Source(names[0], function)
        self.random = random
        self.stateful = stateful
        self._variables = dict(variables or {})
        self._function = function
        self._rewrites = rewrites
        self._tensors: list[inspect.Parameter] = []
        self._attributes: dict[str, Any] = {}
        self._variadic: Optional[str] = None
        self._wants_out_shapes = False
        self._read_signature()
        self.__doc__ = function.__doc__
        self.__name__ = names[0]

    def _read_signature(self) -> None:
        for parameter in inspect.signature(self._function).parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                self._variadic = parameter.name
            elif parameter.kind is parameter.KEYWORD_ONLY:
                if parameter.name == _OUT_SHAPES:
                    self._wants_out_shapes = True
                else:
                    self._attributes[parameter.name] = parameter.default
            elif parameter.kind is parameter.VAR_KEYWORD:
                raise self.source.error(
                    "unnamed attributes",
                    f"**{parameter.name}",
                    "name every attribute that matters, after a bare *",
                )
            else:
                self._tensors.append(parameter)

    def serves(self, *names: str) -> Description:
        """Make this description cover more operators, which compute the same.

        Args:
            *names: the additional operators.

        Returns:
            The description.

        Raises:
            TdlError: another description already names one of them.
        """
        _enter(self, names, named=True)
        self.names += names
        return self

    @property
    def location(self) -> str:
        """File and line."""
        return self.source.location

    @property
    def is_shipped(self) -> bool:
        """Whether the description is one of tofu's own."""
        return self._function.__module__.startswith(_SHIPPED)

    def words(self, variable: str) -> str:
        """The meaning of an index variable, or "" if the description does not say."""
        return self._variables.get(variable) or self._variables.get(variable.rstrip(_DIGITS), "")

    def input_name(self, slot: int) -> str:
        """The name of an input."""
        if slot < len(self._tensors):
            return self._tensors[slot].name
        return f"{self._variadic or 'input'}[{slot - len(self._tensors)}]"

    def __repr__(self) -> str:
        return f"<tofu.op {self.names[0]} at {self.location}>"

    def attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Parse the attributes that the description declares; drop all others."""
        values = {}
        for name, default in self._attributes.items():
            if name in attributes:
                values[name] = parse_attribute(attributes[name], default)
            elif default is inspect.Parameter.empty:
                raise self.source.error(
                    f"attribute {name} is missing",
                    f"attributes {sorted(attributes)}",
                    f"give the operator {name}, or the description a default",
                )
            else:
                values[name] = default
        return values

    def trace(
        self,
        in_shapes: Optional[Sequence[Shape]] = None,
        out_shapes: Optional[Sequence[Shape]] = None,
        attributes: Optional[Mapping[str, Any]] = None,
    ) -> Trace:
        """Execute the description.

        Args:
            in_shapes: one shape per input; None: symbolic shapes, of the ranks that the
                description uses.
            out_shapes: one shape per output, hidden ones included.
            attributes: the operator's attributes, as values or as MXNet's strings.

        Raises:
            TdlError: the description is not valid.
        """
        values: dict[str, Any] = self.attributes(attributes or {})
        use = ShapeUse()
        outs = None if out_shapes is None else tuple(KnownShape(s, use) for s in out_shapes)
        if self._wants_out_shapes:
            if outs is None:
                raise self.source.error(
                    "the description reads the outputs' shapes, but the analysis has none",
                    _OUT_SHAPES,
                    "give shapes to the analysis",
                )
            values[_OUT_SHAPES] = outs
        ins = None if in_shapes is None else [KnownShape(s, use) for s in in_shapes]
        trace = execute(self.source, self._function, self._handles(ins), values, outs)
        return dataclasses.replace(trace, reads_sizes=use.sizes)

    def rewrites(
        self, in_shapes: Sequence[Shape], attributes: Optional[Mapping[str, Any]] = None
    ) -> tuple[list[Rewrite], bool]:
        """Returns the attributes that change in parts, and whether they depend on sizes."""
        if not callable(self._rewrites):
            return list(self._rewrites), False
        use = ShapeUse()
        shapes = [KnownShape(s, use) for s in in_shapes]
        return list(self._rewrites(shapes, **self.attributes(attributes or {}))), use.sizes

    def _handles(self, shapes: Optional[Sequence[KnownShape]]) -> list[TensorHandle]:
        names = [p.name for p in self._tensors]
        required = sum(p.default is inspect.Parameter.empty for p in self._tensors)
        if shapes is None:
            if self._variadic is not None:
                raise self.source.error(
                    "the number of tensors is unknown",
                    f"*{self._variadic}",
                    "give shapes: tofu.analyze(description, [shape, ...])",
                )
            return [TensorHandle(k, name, None) for k, name in enumerate(names[:required])]
        if self._variadic is not None:
            names += [f"{self._variadic}[{k}]" for k in range(len(shapes) - len(names))]
        if not required <= len(shapes) <= len(names):
            raise self.source.error(
                f"the operator has {len(shapes)} inputs",
                f"({', '.join(names)})",
                f"{required} to {len(names)} tensors",
            )
        return [TensorHandle(k, names[k], s) for k, s in enumerate(shapes)]


def parse_attribute(value: Any, default: Any = inspect.Parameter.empty) -> Any:
    """Parses an attribute from MXNet's text: "(3, 3)", "True", "None", "64", "relu".

    "0" or "1" becomes a bool if the default is a bool; a number becomes a tuple if the
    default is a tuple.
    """
    if isinstance(value, str):
        value = _parse_text(value.strip())
    if isinstance(default, bool) and isinstance(value, int):
        return bool(value)
    if isinstance(default, tuple) and isinstance(value, int):
        return (value,)
    return value


@functools.lru_cache(maxsize=4096)
def _parse_text(text: str) -> Any:
    constants = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return constants[text.lower()]
    if not text or text[0] not in "([+-.0123456789":
        return text
    try:
        value = ast.literal_eval(text.replace("L", ""))
    except (ValueError, SyntaxError):
        return text
    return tuple(value) if isinstance(value, list) else value


@overload
def op(function: Callable[..., Any]) -> Description: ...


@overload
def op(
    *,
    name: Union[str, Sequence[str], None] = ...,
    rewrites: Rewrites = ...,
    random: bool = ...,
    stateful: bool = ...,
    variables: Optional[Mapping[str, str]] = ...,
) -> Callable[[Callable[..., Any]], Description]: ...


def op(
    function: Optional[Callable[..., Any]] = None,
    *,
    name: Union[str, Sequence[str], None] = None,
    rewrites: Rewrites = (),
    random: bool = False,
    stateful: bool = False,
    variables: Optional[Mapping[str, str]] = None,
) -> Any:
    """Describe an operator by a function of its tensors that returns a lambda.

    The function's positional parameters are the operator's inputs (a default of None
    makes an input optional, ``*args`` takes any number), its keyword-only parameters the
    attributes that matter. It returns one lambda over the output's index variables, or a
    tuple of lambdas, one per output. Variables with the same name are one variable.

    Args:
        function: the description, when used as a plain ``@tofu.op``.
        name: the operator's name, or the names of all operators that it describes;
            default: the function's name.
        rewrites: attributes that change in parts of the operator, or a function of the
            input shapes and the attributes that returns them.
        random: whether two runs of the operator differ.
        stateful: whether a run writes to the operator's inputs, or keeps something for its backward
            operator, so that recomputation must not run it again.
        variables: meanings of index variables, such as ``{"ci": "input channels"}``, for
            ``tofu plan --explain`` and ``tofu ops``; "y" stands for "y0", "y1", ... as well.

    Raises:
        TdlError: another description already names this operator. Only functions
            decorated by a plain ``@tofu.op`` may be defined again.

    Example:
        >>> import tofu
        >>> from tofu import Sum
        >>> @tofu.op
        ... def conv1d(data, filters):
        ...     return lambda b, co, x: Sum(
        ...         lambda ci, dx: data[b, ci, x + dx] * filters[ci, co, dx])
        >>> [s.variable for s in tofu.analyze(conv1d).strategies]
        ['b', 'co', 'x', 'ci', 'dx']
    """

    def register(described: Callable[..., Any]) -> Description:
        names = (name,) if isinstance(name, str) else tuple(name or (described.__name__,))
        description = Description(described, names, rewrites, random, variables, stateful)
        _enter(description, names, named=name is not None)
        return description

    return register if function is None else register(function)


def _enter(description: Description, names: Sequence[str], *, named: bool) -> None:
    for name in names:
        previous = _REGISTRY.get(name)
        if previous is not None and not _redefines(description, name, previous, named=named):
            raise TdlError(
                f"description of {name} at {description.location}: {name} is already described at "
                f"{previous.location}; expected one description per operator, so remove or rename "
                "one"
            )
        _REGISTRY[name] = description
        _NAMED.update({name} if named else ())


def _redefines(new: Description, name: str, previous: Description, *, named: bool) -> bool:
    """Whether a description may replace another, as when a notebook cell runs again."""
    same_place = (new.source.file, new.source.line) == (previous.source.file, previous.source.line)
    return same_place or not (named or name in _NAMED)


def lookup(name: str) -> Optional[Description]:
    """The description of an operator, or None."""
    return _REGISTRY.get(name)


def registered() -> dict[str, Description]:
    """All descriptions by operator name."""
    return dict(_REGISTRY)
