"""Seeded random problems of 50 to 500 variables, in the format of docs/formats.md."""

from __future__ import annotations

import random
from typing import Any

FORBIDDEN = 10**18


def random_problem(seed: int) -> dict[str, Any]:
    """A chain, tree, ladder or sparse graph, with uses of memory and a limit in most cases."""
    rng = random.Random(seed)
    count = rng.randint(50, 500)
    domains = [rng.choice((1, 2, 2, 3, 3, 4)) for _ in range(count)]
    most = rng.choice((3, 100, 10**6))
    forbidden = rng.choice((0.0, 0.0, 0.04))

    def costs(size: int, share: float) -> list[int]:
        return [FORBIDDEN if rng.random() < share else rng.randint(0, most) for _ in range(size)]

    pairs = []
    for a, b in _edges(rng, count):
        cells = costs(domains[a] * domains[b], forbidden)
        if rng.random() < 0.1 and domains[a] == domains[b]:  # one decision
            cells = [
                c if i % domains[b] == i // domains[b] else FORBIDDEN for i, c in enumerate(cells)
            ]
        pairs.append([a, b, cells])
    unary = [costs(size, forbidden / 10) if rng.random() < 0.7 else [] for size in domains]
    for v, cells in enumerate(unary):
        if cells and min(cells) == FORBIDDEN:
            unary[v] = []
    problem: dict[str, Any] = {
        "format": "tofu-step-problem",
        "version": 2,
        "constant": rng.randint(0, 9),
        "domains": domains,
        "unary": unary,
        "pairs": pairs,
    }
    if rng.random() < 0.75:
        problem["memory"] = _memory(rng, domains)
    return problem


def _edges(rng: random.Random, count: int) -> list[tuple[int, int]]:
    shape = rng.choice(("chain", "tree", "ladder", "sparse"))
    if shape == "chain":
        return [(v - 1, v) for v in range(1, count)]
    if shape == "tree":
        return [(rng.randrange(max(0, v - 20), v), v) for v in range(1, count)]
    if shape == "ladder":
        rungs = [(v - 1, v) for v in range(1, count, 2)]
        return rungs + [(v - 2, v) for v in range(2, count)]
    tree = [(rng.randrange(max(0, v - 8), v), v) for v in range(1, count)]
    more = [(rng.randrange(max(0, v - 12), v), v) for v in range(1, count) if rng.random() < 0.25]
    return sorted(set(tree + more))


def _memory(rng: random.Random, domains: list[int]) -> dict[str, Any]:
    uses = []
    least = [0] * (len(domains) + 40)  # [moment]: bytes that every choice uses
    mean = [0] * len(least)
    for v, size in enumerate(domains):
        usage = [rng.randint(0, 50) for _ in range(size)]
        begin, end = v, v + rng.choice((1, 4, 30))
        uses.append([v, begin, end, usage])
        for moment in range(begin, end):
            least[moment] += min(usage)
            mean[moment] += sum(usage) // size
    low, high = max(least), max(mean)
    return {"limit": int(low + rng.uniform(-0.02, 0.8) * (high - low)), "uses": uses}
