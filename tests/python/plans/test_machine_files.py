"""Machine files that tofu ships, and errors in the user's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tofu.analysis.work import KINDS
from tofu.errors import ConfigError
from tofu.plans.machine_files import read_machine, shipped_machines

PAGE = Path(__file__).resolve().parents[3] / "docs" / "simulation.md"


@pytest.mark.parametrize("name", shipped_machines())
def test_a_shipped_machine_names_its_sources(name: str) -> None:
    machine = read_machine(name)
    assert machine.name == name
    assert not machine.measured
    assert len(machine.sources) >= 2
    assert any("assumed" in source for source in machine.sources)
    assert f"| `{name}` |" in PAGE.read_text(encoding="utf-8")


def test_the_papers_machine_has_the_papers_memory() -> None:
    machine = read_machine("p2.8xlarge")
    assert (machine.devices, machine.is_gpu, machine.memory_bytes) == (8, True, 11366 * 2**20)


def test_larger_operators_reach_more_of_a_gpus_rate() -> None:
    machine = read_machine("dgx-a100")
    for kind in KINDS:
        small = machine.operator_seconds("x", (kind, 1e5, 1e5))
        large = machine.operator_seconds("x", (kind, 1e11, 1e11))
        assert 0 < large < 1e6 * small
    # The expected rate is 80% of 19.5 TFLOP/s.
    assert machine.operator_seconds("dot", ("product", 15.6e12, 1)) == pytest.approx(1, rel=0.01)


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(ConfigError, match='found "sum", expected one of product, convolution'):
        read_machine("p2.8xlarge").operator_seconds("x", ("sum", 1, 1))


def test_neither_a_file_nor_a_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--machine p4: found no such file.*8xh100.*p2.8xlarge"):
        read_machine("p4")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"cannot be read \(not a text file"):
        read_machine(str(binary))


def test_a_damaged_file_is_named_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    package = Path(read_machine.__code__.co_filename).parents[1]
    source = package / "simulate" / "machines" / "p2.8xlarge.json"
    document = json.loads(source.read_text(encoding="utf-8"))
    document["links"][0]["latency_s"] = "fast"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        read_machine(str(path))
    text = str(error.value)
    assert text.startswith(
        f'machine file {path}: links[0].latency_s: found "fast", expected a number'
    )
    assert "\n" not in text
