"""The environment: what steers the search, and what is said to bad values."""

from pathlib import Path

import pytest

from tofu.config import MODES, VARIABLES, Config, parse_pins, read_pins
from tofu.errors import ConfigError


def test_unset_is_the_default():
    config = Config.from_environment({})
    assert (config.search, config.pins, config.plan) == ("tofu", (), None)


def test_values_are_read():
    environ = {"TOFU_SEARCH": "Spartan", "TOFU_PINS": "a=0 b=-1,1", "TOFU_PLAN": "net.plan"}
    config = Config.from_environment(environ)
    assert config.search == "spartan"
    assert config.pins == (("a", (0,)), ("b", (-1, 1)))
    assert config.plan == Path("net.plan")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TOFU_WORKER", "TOFU_WORKERS"),
        ("tofu_workers", "TOFU_WORKERS"),
        ("TOFU_NUM_WORKERS", "TOFU_WORKERS"),
        ("TOFUWORKERS", "TOFU_WORKERS"),
        ("TOFU_PIN", "TOFU_PINS"),
        ("TOFU_REPLICATE", "TOFU_REPLICATION"),
        ("Tofu_Log", "TOFU_LOG"),
    ],
)
def test_misspelt_variables_are_told(name, meant):
    with pytest.raises(
        ConfigError, match=f"^{name}: tofu has no such variable; did you mean {meant}"
    ):
        Config.from_environment({name: "2"})


def test_variables_of_others_are_none_of_ours():
    names = ("TOFU", "TOFU_RECIPES", "OPENTOFU_WORKERS", "PATH", "TOFUTTI", *VARIABLES)
    Config.from_environment(dict.fromkeys(names, ""))


@pytest.mark.parametrize(("text", "expected"), [("", False), ("0", False), ("1", True)])
def test_replication_is_allowed_by_one(text, expected):
    assert Config.from_environment({"TOFU_REPLICATION": text}).replication is expected


def test_replication_is_a_switch():
    with pytest.raises(ConfigError, match=r"TOFU_REPLICATION='yes': expected 1 \(on\) or 0 \(off"):
        Config.from_environment({"TOFU_REPLICATION": "yes"})


def test_an_unknown_mode_is_told_all_modes():
    with pytest.raises(ConfigError) as error:
        Config.from_environment({"TOFU_SEARCH": "recursive"})
    text = str(error.value)
    assert text.startswith("TOFU_SEARCH=recursive: no such search mode; expected one of tofu,")
    assert all(mode in text for mode in MODES)
    assert "did you mean recursion?" in text


def test_a_file_of_pins(tmp_path):
    path = tmp_path / "pins"
    path.write_text("# embeddings\nembed_weight=1\n\nfc1_weight = 0,1  # rows, then columns\n")
    expected = (("embed_weight", (1,)), ("fc1_weight", (0, 1)))
    assert read_pins(path, "--pins") == expected
    assert Config.from_environment({"TOFU_PINS": str(path)}).pins == expected


@pytest.mark.parametrize("pin", ["w", "w=", "=0", "w=a", "w=0,", "w=-2", "w=0.5"])
def test_a_pin_is_a_name_and_dimensions(pin):
    with pytest.raises(ConfigError, match=r"--pin .*: expected TENSOR=DIM"):
        parse_pins([pin], "--pin")


def test_pins_that_contradict_each_other():
    assert parse_pins(["w=0", "w=0"], "--pin") == (("w", (0,)),)
    with pytest.raises(ConfigError, match="--pin w=1: pinned before as w=0; keep one"):
        parse_pins(["w=0", "v=2", "w=1"], "--pin")


def test_a_line_of_a_file_that_is_no_pin(tmp_path):
    path = tmp_path / "pins"
    path.write_text("w=0\nnonsense\n")
    with pytest.raises(ConfigError, match=r"--pins .*pins: nonsense: expected TENSOR=DIM"):
        read_pins(path, "--pins")


def test_files_of_pins_that_cannot_be_read(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"absent: cannot be read \(No such file"):
        read_pins(tmp_path / "absent", "--pins")
    with pytest.raises(ConfigError, match=r"TOFU_PINS .*binary: cannot be read \(not a text file"):
        Config.from_environment({"TOFU_PINS": str(tmp_path / "binary")})


def test_modes_are_those_of_the_search():
    core = pytest.importorskip("tofu._core")
    assert tuple(core.search_modes) == MODES
