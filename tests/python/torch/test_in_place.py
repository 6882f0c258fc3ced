"""Calls overwrite only inputs of which they are the last reader."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tofu.torch.graphs.calls import _Input, places_of
from tofu.torch.programs.in_place import in_place
from tofu.torch.programs.rank_graph import Moves
from tofu.torch.programs.rank_memory import dry_run
from tofu.torch.programs.rank_steps import Call, Start

aten = torch.ops.aten
FORM = ((2, 3), 0)


def call(function: Any, made: int, *reads: int, drops: tuple[int, ...] = ()) -> Call:
    tiles = tuple((k, 0) for k in reads)
    arguments = tuple(_Input(k) for k in range(len(reads)))
    made_tiles = (((made, 0), 0),)
    dropped = tuple((k, 0) for k in drops)
    return Call("", function, tiles, arguments, {}, made_tiles, dropped)


def sends(tile: int) -> Start:
    """The start of an exchange in which this rank, 0, sends a tile to rank 1."""
    graph: Any = None
    return Start("", Moves(graph, (), True, ((tile, 0),), (), (), False))


def functions(*steps: Any, forms: Any = None) -> list[Any]:
    calls = [step for step in steps if isinstance(step, Call)]
    known = forms or {}
    done = in_place(calls, steps, lambda tile: known.get(tile[0], FORM))
    return [step.function for step in done if isinstance(step, Call)]


FIRST = call(aten.mm.default, 1, 10, 11)


def test_a_result_takes_the_place_of_a_tile_that_is_read_last() -> None:
    last = call(aten.add.Tensor, 2, 1, 10, drops=(1,))
    assert functions(FIRST, last)[1] == aten.add_.Tensor
    then = call(aten.mul.Tensor, 3, 2, 10, drops=(2,))
    assert functions(FIRST, last, then)[1:] == [aten.add_.Tensor, aten.mul_.Tensor]


@pytest.mark.parametrize(
    "steps",
    [
        (FIRST, call(aten.add.Tensor, 2, 1, 10)),
        (call(aten.add.Tensor, 2, 1, 10, drops=(1,)),),
        (FIRST, call(aten.view.default, 3, 1), call(aten.add.Tensor, 2, 1, 10, drops=(1,))),
        (FIRST, sends(1), call(aten.add.Tensor, 2, 1, 10, drops=(1,))),
        (FIRST, call(aten.add.Tensor, 2, 1, 1, drops=(1,))),
        (FIRST, call(aten.add.Tensor, 2, 10, 1, drops=(1,))),
    ],
    ids=[
        "read later",
        "made before",
        "seen as a view",
        "being sent",
        "read twice",
        "second argument",
    ],
)
def test_what_something_else_may_read_is_not_written_over(steps) -> None:
    assert functions(*steps)[-1] == aten.add.Tensor


def test_a_result_of_another_shape_or_type_has_memory_of_its_own() -> None:
    last = call(aten.add.Tensor, 2, 1, 10, drops=(1,))
    assert functions(FIRST, last, forms={2: ((4, 2, 3), 0)})[1] == aten.add.Tensor
    assert functions(FIRST, last, forms={2: ((2, 3), 1)})[1] == aten.add.Tensor


def test_a_step_holds_less() -> None:
    import tofu.torch
    from tofu.torch.programs import rank_program

    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.Tanh())
    plan = tofu.torch.plan(model, (torch.randn(1024, 8),), mesh=(2,))
    program, _, _ = dry_run(plan)
    changed = {str(step.function) for step in program.forward_steps if isinstance(step, Call)}
    assert "aten.mul_.Tensor" in changed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_program, "in_place", lambda calls, steps, form: list(steps))
        before, _, _ = dry_run(plan)
    assert sum(life.bytes for life in program.lives.lives) < sum(
        life.bytes for life in before.lives.lives
    )


def test_arguments_that_are_tensors_have_places() -> None:
    assert places_of((2.0, _Input(1), [1, 2]), {"alpha": 1}) == ((1, 1),)
    assert places_of(([_Input(0)], 1), {}) is None
    assert places_of((_Input(0),), {"out": _Input(1)}) is None
