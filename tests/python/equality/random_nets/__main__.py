"""Compares random nets, one line of JSON for each (see the package)."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from typing import Any

from .draw import draw
from .judge import attempt
from .spec import from_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="?", default="", help="0-39, or 1,5,7")
    parser.add_argument("--show", type=int, help="print what a seed stands for")
    parser.add_argument("--spec", help="compare the Spec in this file instead")
    parser.add_argument("--shrink", type=int, help="look for a smaller net with the same fault")
    arguments = parser.parse_args()
    # MXNet warns of deferred shapes and of dtypes; tofu's warnings are recorded where it runs.
    warnings.simplefilter("ignore")
    if arguments.show is not None:
        print(draw(arguments.show).text())
    elif arguments.shrink is not None:
        from .shrink import shrink

        print(shrink(draw(arguments.shrink)).text())
    elif arguments.spec is not None:
        with open(arguments.spec, encoding="utf-8") as file:
            text = file.read()
        _print(attempt(arguments.spec, lambda: from_text(text)))
    else:
        for seed in _parse(arguments.seeds):
            # If the process ends, the reader knows the seed.
            _print({"seed": seed, "status": "begins"})
            record = attempt(
                seed,
                lambda seed=seed: draw(seed),
                lambda seed=seed: _print({"seed": seed, "status": "ran serially"}),
            )
            _print(record)
            if record["status"] != "equal":
                break  # MXNet keeps some errors, so later ones might be of this seed, too


def _print(record: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def _parse(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


main()
