"""Says which results are older than the code that they come from, and makes them again.

    python scripts/results.py                     # every result, and whether it is stale
    python scripts/results.py --make              # makes stale ones again that count or predict
    python scripts/results.py --make --timed      # also results that measure time, on idle machines
    python scripts/results.py --make speed table1 # these results, stale or not

A result is a file docs/results/NAME.json that scripts/NAME.py or benchmarks/NAME.py writes, with
its picture. It is stale if any file that its script depends on has changed; a change of comments or
layout does not count (_sources.py). Pages are written by hand: at the end, the script names results
that changed and the pages that speak of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from _sources import ROOT, digest, script_of, sources_of

from tofu.tables import table

RESULTS = ROOT / "docs" / "results"
# Results that measure time: other load on the machine spoils their numbers.
TIMED = ("host_cost", "search", "setup", "simulation", "speed", "table1", "torch_step")
# Keys whose values differ whenever a result is made; comparisons ignore them.
CIRCUMSTANCES = ("context", "search_seconds", "planning_s")


@dataclasses.dataclass(frozen=True)
class Result:
    """A committed result.

    Attributes:
        name: of its file.
        script: the script that makes it.
        made: its making: "by", "commit", "code" and "seconds"; empty: unknown.
        values: all other values of its file.
    """

    name: str
    script: Path
    made: dict[str, Any]
    values: dict[str, Any]

    @property
    def is_timed(self) -> bool:
        """Whether its numbers depend on other load on the machine."""
        return self.name in TIMED

    @property
    def is_stale(self) -> bool:
        """Whether its code has changed, or is unknown."""
        return self.made.get("code") != digest(sources_of(self.script))

    @property
    def command(self) -> list[str]:
        """The command that makes the file again."""
        is_benchmark = self.script.parent.name == "benchmarks"
        output = RESULTS / f"{self.name}.json" if is_benchmark else RESULTS
        return [sys.executable, str(self.script), "--output", str(output)]

    @property
    def missing(self) -> Optional[str]:
        """The package that its script needs and this environment lacks."""
        package = "torch" if self.name.startswith("torch") else "mxnet"
        return None if importlib.util.find_spec(package) else package


def read_results(folder: Path = RESULTS) -> Iterator[Result]:
    """The results in docs/results that scripts make."""
    for path in sorted(folder.glob("*.json")):
        script = script_of(path.stem)
        if script is not None:
            values = json.loads(path.read_text(encoding="utf-8"))
            yield Result(path.stem, script, values.pop("made", {}), values)


def to_text(results: Sequence[Result]) -> str:
    """A table of the results, with the time that each takes to make."""
    cells = [
        (
            result.name,
            "stale" if result.is_stale else "current",
            result.made.get("commit", "unknown"),
            f"{result.made['seconds']} s" if "seconds" in result.made else "-",
            "time" if result.is_timed else "",
        )
        for result in results
    ]
    return "\n".join(table(("result", "state", "made at", "took", "measures"), cells, right=(3,)))


def make(results: Sequence[Result]) -> list[str]:
    """Make results again, one after the other; return the names of those that failed."""
    failed = []
    for result in results:
        if result.missing is not None:
            print(f"{result.name}: left out, as {result.missing} is not installed", flush=True)
            continue
        print(f"{result.name}: {' '.join(result.command[1:])}", flush=True)
        ran = subprocess.run(result.command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            failed.append(result.name)
            print(f"  failed: {(ran.stderr.splitlines() or ['no message'])[-1]}", flush=True)
    return failed


def without_circumstances(value: Any) -> Any:
    """A result's values without CIRCUMSTANCES."""
    if isinstance(value, dict):
        fields = {key: each for key, each in value.items() if key not in CIRCUMSTANCES}
        return {key: without_circumstances(each) for key, each in fields.items()}
    return [without_circumstances(each) for each in value] if isinstance(value, list) else value


def changed(before: Sequence[Result], after: Sequence[Result]) -> list[str]:
    """The names of the results whose values have changed."""
    values_before = {each.name: without_circumstances(each.values) for each in before}
    return [
        result.name
        for result in after
        if result.name in values_before
        and values_before[result.name] != without_circumstances(result.values)
    ]


def pages_of(name: str) -> list[str]:
    """The pages that link a result's data or picture."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    links = (f"{name}.json)", f"{name}.svg)")
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    return [
        str(page.relative_to(ROOT))
        for page, text in texts.items()
        if page.name != "paper.md" and any(link in text for link in links)
    ]


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """List stale results, and make them again if the command line says so."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--make", action="store_true", help="make stale results again")
    parser.add_argument("--timed", action="store_true", help="also those that measure time")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these; stale or not")
    options = parser.parse_args(arguments)
    results = list(read_results())
    unknown = sorted(set(options.names) - {each.name for each in results})
    if unknown:
        parser.error(f"no result {', '.join(unknown)}: expected files of {RESULTS}")
    chosen = [each for each in results if not options.names or each.name in options.names]
    print(to_text(chosen))
    if not options.make:
        return
    to_make = [
        result
        for result in chosen
        if options.names or (result.is_stale and (options.timed or not result.is_timed))
    ]
    failed = make(to_make)
    subprocess.run([sys.executable, str(script_of("paper")), "--page", str(RESULTS)], check=True)
    for name in changed(to_make, list(read_results())):
        print(f"{name} changed: see {', '.join(pages_of(name)) or 'no page'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
