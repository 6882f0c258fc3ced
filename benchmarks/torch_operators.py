"""Runs torch's own samples of its operators whole and in parts, by every strategy that tofu finds.

The samples are OpInfo's, with which torch tests itself. Each is the forward of a small module, so
that its graph has the operators of the backward pass, too. What cannot be traced is counted apart.

    python benchmarks/torch_operators.py --output docs/results/torch_operators.json
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from tofu.errors import GraphError
from tofu.torch.commands.verify import verify_module

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from _results import write_json

SAMPLES = 2
SMOKE = ("add", "softmax", "nn.functional.linear")


class Called(torch.nn.Module):
    """A module whose forward is an operator, on its inputs and a sample's other arguments."""

    def __init__(self, operator: Callable[..., Any], leaves: Sequence[Any], spec: Any) -> None:
        """Take an operator and a sample's arguments; tensors are the module's inputs."""
        super().__init__()
        self.call = lambda *args, **named: operator(*args, **named)
        self.spec = spec
        self.leaves = [None if isinstance(each, torch.Tensor) else each for each in leaves]
        self.places = [k for k, each in enumerate(leaves) if isinstance(each, torch.Tensor)]

    def forward(self, *inputs: Any) -> list[Any]:
        """The results that are tensors."""
        leaves = list(self.leaves)
        for place, value in zip(self.places, inputs):
            leaves[place] = value
        args, named = pytree.tree_unflatten(leaves, self.spec)
        found = pytree.tree_leaves(self.call(*args, **named))
        return [x for x in found if isinstance(x, torch.Tensor)]


def samples_of(operator: Any, most: int) -> Iterator[tuple[Called, list[Any]]]:
    """The first samples of an operator, as modules with their inputs, in float64 if it has that."""
    kinds = [k for k in (torch.float64, torch.float32, torch.int64) if k in operator.dtypes]
    if not kinds:
        return
    gradients = operator.supports_autograd and kinds[0].is_floating_point
    for sample in itertools.islice(operator.sample_inputs("cpu", kinds[0], gradients), most):
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        inputs = [each for each in leaves if isinstance(each, torch.Tensor)]
        yield Called(operator.op, leaves, spec), inputs


def measured(operator: Any, most: int = SAMPLES) -> dict[str, Any]:
    """What of an operator's samples is described, and which splits are false."""
    torch.manual_seed(0)
    row: dict[str, Any] = {"operator": operator.full_name, "calls": 0, "strategies": 0}
    covered, undescribed, false, reasons = set(), set(), [], []
    for module, inputs in samples_of(operator, most):
        try:
            report = verify_module(module, inputs)
        except (GraphError, RuntimeError) as error:
            reasons.append(" ".join(str(error).split())[-200:])
            continue
        row["calls"] += report.calls
        row["strategies"] += report.strategies
        undescribed |= report.undescribed
        covered |= report.covered
        false += report.false
    return {
        **row,
        "described": sorted(covered),
        "undescribed": sorted(undescribed - covered),
        "false": false,
        "not_traced": reasons[:1],
    }


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Counts of ATen's operators, and all that are not described."""
    described = {name for row in rows for name in row["described"]}
    called = described.union(*(row["undescribed"] for row in rows))
    false = [text for row in rows for text in row["false"]]
    refused = [row for row in rows if not row["calls"] and row["not_traced"]]
    strategies = sum(row["strategies"] for row in rows)
    return [
        f"{len(rows)} operators of torch, {len(refused)} of which no sample can be traced",
        f"{len(called)} operators of ATen in their graphs, {len(described)} described "
        f"({len(described) / max(1, len(called)):.0%})",
        f"{strategies} splits run, {len(false)} false",
        *false,
        "not described: " + ", ".join(sorted(called - described)),
    ]


def main() -> None:
    """Measure all operators, and write the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write JSON")
    parser.add_argument("--samples", type=int, default=SAMPLES, metavar="N", help="per operator")
    parser.add_argument("--smoke", action="store_true", help="three operators")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for operator in op_db:
        if not args.smoke or operator.full_name in SMOKE:
            try:
                rows.append(measured(operator, args.samples))
            except Exception:
                print(f"in {operator.full_name}", file=sys.stderr)
                raise
    if args.output:
        write_json(args.output, {"torch": torch.__version__, "rows": rows})
    print("\n".join(lines(rows)))


if __name__ == "__main__":
    main()
