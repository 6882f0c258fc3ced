"""Thousands of damaged files through the command line: no traceback, no crash, no hang.

Takes a sample by default, and 5,000 files of each format and command with --full: FORMATS took
20 minutes on a machine of two busy cores.
"""

from __future__ import annotations

import copy
import gzip
import json
import os
import random
import signal
import subprocess
import sys
from importlib import resources

import pytest

from tofu.analysis.described import load_described
from tofu.cli import main
from tofu.lang import description
from tofu.plans import file as plan_file

from ..support import forked
from .test_cli import environment  # noqa: F401  (a fixture)
from .test_show import NAMED

SAMPLE, FULL = 150, 5000
SYMBOLS, ALONE = 12, 50
ODD = (
    None, True, -1, 0, 1, 7, 2**31, 2**63, 10**400, 1.5, 1e308, "", "x", "\ud800", [], {}, [[]],
    [None], {"x": 1}, "i1", [0, 0], [-1],
)  # fmt: skip


def places(value, path=()):
    """The paths of all parts of a document."""
    yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from places(each, (*path, number))


def edited(document, rng):
    """A document with a few parts replaced, removed or repeated."""
    made = copy.deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        path = rng.choice([path for path in places(made) if path])
        parent = made
        for key in path[:-1]:
            parent = parent[key]
        action = rng.random()
        if action < 0.6:
            parent[path[-1]] = copy.deepcopy(rng.choice(ODD))
        elif action < 0.8:
            del parent[path[-1]]
        elif isinstance(parent, list):
            parent.insert(path[-1], copy.deepcopy(parent[path[-1]]))
        if not made:
            return made
    return made


def damaged(data, rng):
    """Bytes with a few of them changed, lost or repeated, or with the end cut off."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not made:
            break
        place = rng.randrange(len(made))
        action = rng.randrange(5)
        if action == 0:
            made[place] = rng.randrange(256)
        elif action == 1:
            del made[place : place + rng.randint(1, 20)]
        elif action == 2:
            made[place:place] = made[place : place + rng.randint(1, 20)]
        elif action == 3:
            made[place:place] = rng.choice([b"[", b"{", b'"', b"9" * 30, b"\0", b"=", b",", b"-"])
        else:
            del made[place:]
    return bytes(made)


def plan_text(rng):
    """A plan file, mostly with a correct checksum, so that a reader gets further."""
    plans = edited([NAMED, {**NAMED, "workers": 4, "parts": [2, 2]}], rng)
    document = {"format": "tofu-plan-file", "version": 1, "plans": plans}
    document["sha256"] = plan_file._digest(plans)
    data = json.dumps(document).encode()
    return data if rng.random() < 0.8 else damaged(data, rng)


def pins_text(rng):
    return damaged(b"net_dense0_weight=0,1\n# a comment\nfc1_weight = 1\n*_bias=-1\n", rng)


PROBLEM = {
    "format": "tofu-step-problem", "version": 2, "constant": 3, "domains": [2, 3],
    "unary": [[], [5, 0, 2]], "pairs": [[0, 1, [4, 4, 0, 1, 0, 9]]],
    "memory": {"limit": 9, "uses": [[0, 0, 2, [4, 5]], [1, 1, 3, [1, 2, 3]]]},
}  # fmt: skip


def problem_text(rng):
    data = json.dumps(edited(PROBLEM, rng)).encode()
    return data if rng.random() < 0.7 else damaged(data, rng)


CONTEST = {
    "problem": {
        "name": "two",
        "nodes": {
            "intervals": [[0, 2], [1, 3]],
            "costs": [[4, 5], [1, 2, 3]],
            "usages": [[4, 5], [1, 2, 3]],
        },
        "edges": {"nodes": [[0, 1]], "costs": [[4, 4, 0, 1, 0, 9]]},
        "usage_limit": 9,
    }
}


def contest_text(rng):
    data = json.dumps(edited(CONTEST, rng)).encode()
    return data if rng.random() < 0.7 else damaged(data, rng)


def machine_text(rng):
    path = resources.files("tofu.simulate") / "machines" / "p2.8xlarge.json"
    data = json.dumps(edited(json.loads(path.read_text("utf-8")), rng)).encode()
    return data if rng.random() < 0.7 else damaged(data, rng)


FORMATS = {
    "contest's problem": (
        contest_text,
        lambda path: ["benchmarks/solve.py", "--time=0.05", f"--save={path}.solution", path],
    ),
    "machine": (machine_text, lambda path: ["simulate", "--machine", path, "nosuch-model"]),
    "shown plan": (plan_text, lambda path: ["show", path]),
    "layers of a plan": (plan_text, lambda path: ["show", "--layers", path, "*weight"]),
    "page of a plan": (plan_text, lambda path: ["show", "--format=html", "--workers=2", path]),
    "two plans": (plan_text, lambda path: ["diff", path, path]),
    "plan as a script": (plan_text, lambda path: ["run", "--pins", path, path]),
    "pins": (pins_text, lambda path: ["run", "--pins", path, "/nonexistent.py"]),
    "pins of a plan": (pins_text, lambda path: ["plan", "--search=nosuch", "--pins", path, "mlp"]),
    "compressed problem": (
        lambda rng: damaged(gzip.compress(json.dumps(PROBLEM).encode(), mtime=0), rng),
        lambda path: ["benchmarks/solve.py", "--time=0.05", f"--save={path}.solution", path],
        ".json.gz",
    ),
    "problem": (
        problem_text,
        lambda path: ["benchmarks/solve.py", "--time=0.05", f"--save={path}.solution", path],
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_no_damaged_file_ends_in_a_traceback(
    name, tmp_path, capsys, full, monkeypatch, import_script
):
    def execute(*args):  # an empty file is a script
        print("runs it")
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execute)
    make, command, *suffix = FORMATS[name]
    path = tmp_path / "".join(["file", *suffix])
    for seed in range(FULL if full else SAMPLE // 5):
        data = make(random.Random(f"{name} {seed}"))
        path.write_bytes(data)
        words = command(str(path))
        is_script = words[0] == "benchmarks/solve.py"
        run = import_script("solve").main if is_script else main.main
        status = 0
        try:
            run(words[is_script:])
        except SystemExit as end:
            status = end.code or 0
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__} of {data!r}") from error
        captured = capsys.readouterr()
        assert status in (0, 1, 2), (seed, status)
        if status == 2:
            assert captured.err.count("\n") == 1, (seed, captured.err)
        else:
            assert captured.out, seed


DESCRIBED = b"""
import tofu
from tofu.lang import Rewrite, apply

@tofu.op(name="Custom:mutant", rewrites=[Rewrite("size", {"size": "o"})], variables={"o": "out"})
def mutant(x, w, bias=None, *, size=1, axes=(0, 1)):
    return lambda b, o: tofu.Sum(lambda i: x[b, 2 * i + 1] * w[o, i]) - 3

@tofu.op(name="_backward_Custom:mutant")
def mutant_gradient(g, x, w, y):
    return lambda b, i: apply("f", g[b, :], x[b, i])[0], lambda o, i: tofu.Max(lambda b: g[b, o])
"""


def test_no_damaged_description_ends_in_a_traceback(tmp_path, capsys, full):
    pytest.importorskip("mxnet")
    load_described()
    path = tmp_path / "described.py"
    known, named = dict(description._REGISTRY), set(description._NAMED)
    for seed in range(FULL if full else SAMPLE // 15):
        data = damaged(DESCRIBED, random.Random(f"description {seed}"))
        path.write_bytes(data)
        os.environ.pop("TOFU_DESCRIBE", None)
        load_described.cache_clear()
        status = 0
        try:
            main.main(["ops", "--describe", str(path), "Custom:mutant"])
        except SystemExit as end:
            status = end.code or 0
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__} of {data!r}") from error
        finally:
            description._REGISTRY.clear()
            description._REGISTRY.update(known)
            description._NAMED.clear()
            description._NAMED.update(named)
        captured = capsys.readouterr()
        assert status in (0, 2), (seed, status)
        assert "Traceback" not in captured.err, (seed, captured.err)
        assert captured.err.startswith("tofu: ") if status else captured.out, seed


RUN_ALL = """
import sys
from tofu.cli import main
for path in sys.argv[1:]:
    sys.stderr.write(f"== {path}\\n")
    try:
        main.main(["plan", "--workers=2", "--shape=data=4,6", "--count=estimate", path])
    except SystemExit as end:
        sys.stderr.write(f"status {end.code or 0}\\n")
"""
NODES = [
    {"op": "null", "name": "data", "inputs": []},
    {"op": "null", "name": "w", "inputs": []},
    {"op": "null", "name": "b", "inputs": []},
    {
        "op": "FullyConnected", "name": "fc", "attrs": {"num_hidden": "8"},
        "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 0]],
    },
    {"op": "Activation", "name": "act", "attrs": {"act_type": "relu"}, "inputs": [[3, 0, 0]]},
]  # fmt: skip
SYMBOL = {
    "nodes": NODES, "arg_nodes": [0, 1, 2], "node_row_ptr": [0, 1, 2, 3, 4, 5],
    "heads": [[4, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]},
}  # fmt: skip


def symbols(folder, count):
    """The paths of `count` damaged symbols."""
    paths = []
    for seed in range(count):
        rng = random.Random(f"symbol {seed}")
        path = folder / f"{seed}.json"
        document = edited(SYMBOL, rng)
        data = json.dumps(document).encode()
        path.write_bytes(data if rng.random() < 0.8 else damaged(data, rng))
        paths.append(str(path))
    return paths


def test_no_damaged_symbol_ends_in_a_traceback(tmp_path, full):
    """Reads each symbol in a forked process, as MXNet itself crashes on some."""
    pytest.importorskip("mxnet")
    paths = symbols(tmp_path, ALONE if full else 1)
    ran = subprocess.run(
        [sys.executable, "-c", RUN_ALL, *paths], capture_output=True, text=True, check=False,
        timeout=100 + 30 * len(paths),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "Traceback" not in ran.stderr, ran.stderr
    assert ran.stderr.count("\nstatus ") == len(paths)
    assert {line for line in ran.stderr.splitlines() if line.startswith("status ")} <= {
        "status 0", "status 2",
    }  # fmt: skip


MXNET_CRASHES = 255  # the exit status of MXNet's handler of segmentation faults

# The command forks before it loads MXNet, which takes a second; here MXNet is loaded first. MXNet
# crashes in the forked process as it does in the command's, which reports that in one line.
FORK_ALL = """
import os, signal, sys, time
import mxnet
from tofu.cli import main
from tofu.mx.model import sources
import tofu.mx.graphs.training_graph, tofu.mx.memory.step_memory
for path in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends the process if it hangs
        out = os.open(path + ".out", os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1)
        os.dup2(out, 2)
        try:
            main.main(["plan", "--workers=2", "--shape=data=4,6", "--count=estimate", path])
            sys.stdout.flush()
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code or 0)
        except BaseException:
            import traceback
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), path, flush=True)
"""


def test_no_damaged_symbol_of_thousands_hangs(tmp_path, full):
    pytest.importorskip("mxnet")
    paths = symbols(tmp_path, FULL if full else SYMBOLS)
    ran = forked.run(["-c", FORK_ALL, *paths], timeout=3000)
    assert ran.returncode == 0, ran.stderr[-2000:]
    ends = [line.split(" ", 1) for line in ran.stdout.splitlines()]
    assert len(ends) == len(paths)
    for status, path in ends:
        with open(path + ".out", encoding="utf-8", errors="replace") as file:
            told = file.read()
        assert "Traceback" not in told, (path, told)
        crashed = int(status) == MXNET_CRASHES or int(status) < 0
        assert int(status) in (0, 2) or (crashed and int(status) != -signal.SIGALRM), path
