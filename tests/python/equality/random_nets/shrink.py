"""Looks for a smaller net, and a shorter script, that fails in the same way."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .judge import attempt
from .spec import Spec
from .supervise import TESTS, command, environment

SECONDS = 60


def shrink(spec: Spec) -> Spec:
    """The smallest Spec that was found to fail as `spec` does."""
    wanted = status(spec)
    assert wanted not in ("equal", "plain raises"), f"nothing to shrink: {wanted}"
    progress = True
    judge = status if wanted in ("crashes", "hangs") else lambda s: attempt(0, lambda: s)["status"]
    while progress:
        progress = False
        for smaller in candidates(spec):
            if judge(smaller) == wanted:
                spec, progress = smaller, True
                print(f"{len(spec.nodes)} layers, {spec.habits}", file=sys.stderr, flush=True)
                break
    return spec


def status(spec: Spec) -> str:
    """The outcome of a Spec in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "spec.py")
        path.write_text(spec.text(), encoding="utf-8")
        try:
            done = subprocess.run(
                command(sys.executable, "--spec", str(path)),
                cwd=TESTS,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "hangs"
    if done.returncode:
        return "crashes"
    return str(json.loads(done.stdout.splitlines()[-1])["status"])


def candidates(spec: Spec) -> Iterator[Spec]:
    """Specs with one layer, input or habit less."""
    for habit in spec.habits:
        yield dataclasses.replace(spec, habits=tuple(h for h in spec.habits if h != habit))
    if len(spec.batches) > 1:
        yield dataclasses.replace(spec, batches=spec.batches[:1])
        yield dataclasses.replace(spec, batches=spec.batches[:-1])
    if spec.hybridize:
        yield dataclasses.replace(spec, hybridize={})
    if spec.fetch != "multifetch":
        yield dataclasses.replace(spec, fetch="multifetch")
    if spec.optimizer[0] != "sgd":
        yield dataclasses.replace(spec, optimizer=("sgd", {"learning_rate": 0.05}))
    for number in range(len(spec.outputs)):
        if len(spec.outputs) > 1:
            yield dataclasses.replace(
                spec,
                outputs=spec.outputs[:number] + spec.outputs[number + 1 :],
                losses=spec.losses[:number] + spec.losses[number + 1 :],
            )
    for number in reversed(range(len(spec.nodes))):
        node = spec.nodes[number]
        for instead in node.inputs:
            yield without(spec, number, instead)
        if node.frozen:
            nodes = list(spec.nodes)
            nodes[number] = dataclasses.replace(node, frozen="")
            yield dataclasses.replace(spec, nodes=tuple(nodes))
    if spec.workers > 2:
        yield dataclasses.replace(spec, workers=2)


def without(spec: Spec, number: int, instead: int) -> Spec:
    """The Spec without a layer, whose readers read another value instead."""
    removed = len(spec.inputs) + number

    def value(old: int) -> int:
        if old == removed:
            old = instead
        return old - (old > removed)

    def shared(old: int | None) -> int | None:
        if old is None or old == number:
            return None
        return old - (old > number)

    nodes = [
        dataclasses.replace(node, inputs=tuple(map(value, node.inputs)), shares=shared(node.shares))
        for i, node in enumerate(spec.nodes)
        if i != number
    ]
    return without_unread(
        dataclasses.replace(spec, nodes=tuple(nodes), outputs=tuple(map(value, spec.outputs)))
    )


def without_unread(spec: Spec) -> Spec:
    """The Spec without layers and inputs that no output depends on."""
    count = len(spec.inputs)
    for number in reversed(range(len(spec.nodes))):
        read = {i for node in spec.nodes for i in node.inputs} | set(spec.outputs)
        if count + number not in read and len(spec.nodes) > 1:
            return without(spec, number, spec.nodes[number].inputs[0])
    return spec
