"""Environment variables: the settings of the search, and errors for bad values."""

import json
import os
from pathlib import Path

import pytest

from tofu import config
from tofu.analysis.table import document
from tofu.config import (
    MAX_WORKERS,
    MODES,
    VARIABLES,
    Config,
    cache_directory,
    graph_pass,
    parse_bytes,
    parse_pins,
    parse_workers,
    read_pins,
)
from tofu.errors import ConfigError, PlanError

ONE_NODE = json.dumps(
    {
        "nodes": [{"op": "null", "name": "x", "inputs": []}],
        "arg_nodes": [0],
        "node_row_ptr": [0, 1],
        "heads": [[0, 0, 0]],
        "attrs": {
            "shape": ["list_shape", [[MAX_WORKERS]]],
            "dtype": ["list_int", [0]],
            "tofu_heads": ["list_str", ["output:0"]],
        },
    }
)


def test_unset_is_the_default():
    config = Config.from_environment({})
    assert (config.search, config.pins, config.plan) == ("tofu", (), None)


def test_values_are_read():
    environ = {"TOFU_SEARCH": "Spartan", "TOFU_PINS": "a=0 b=-1,1"}
    config = Config.from_environment(environ)
    assert config.search == "spartan"
    assert config.pins == (("a", (0,)), ("b", (-1, 1)))
    assert Config.from_environment({"TOFU_PLAN": "net.plan"}).plan == Path("net.plan")


def test_a_search_beside_a_plan_is_refused():
    environ = {"TOFU_SEARCH": "tofu", "TOFU_PLAN": "net.plan"}
    with pytest.raises(ConfigError, match=r"^TOFU_SEARCH=tofu: TOFU_PLAN=net.plan is used instead"):
        Config.from_environment(environ)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TOFU_WORKER", "TOFU_WORKERS"),
        ("tofu_workers", "TOFU_WORKERS"),
        ("TOFU_NUM_WORKERS", "TOFU_WORKERS"),
        ("TOFUWORKERS", "TOFU_WORKERS"),
        ("TOFU_PIN", "TOFU_PINS"),
        ("TOFU_REPLICATE", "TOFU_REPLICATION"),
        ("TOFU_HYBRIDISE", "TOFU_HYBRIDIZE"),
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
    assert Config.from_environment(dict.fromkeys(names, "")) == Config.from_environment({})


@pytest.mark.parametrize(("text", "expected"), [("", False), ("0", False), ("1", True)])
def test_replication_is_allowed_by_one(text, expected):
    assert Config.from_environment({"TOFU_REPLICATION": text}).replication is expected


def test_replication_may_have_a_share_of_the_memory():
    config = Config.from_environment({"TOFU_REPLICATION": "2.5 %"})
    assert config.replication
    assert config.whole_share == 0.025
    for text in ("-2%", "%", "1e9%"):
        with pytest.raises(ConfigError, match=f"TOFU_REPLICATION={text}: expected a percentage"):
            Config.from_environment({"TOFU_REPLICATION": text})


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


@pytest.mark.parametrize(
    ("text", "expected"), [("", True), ("1", True), ("0", False), (" 0 ", False)]
)
def test_blocks_that_were_never_hybridized_are_included(text, expected):
    assert Config.from_environment({"TOFU_HYBRIDIZE": text}).hybridize is expected
    assert Config.from_environment({}).hybridize is True


def test_hybridizing_is_on_or_off():
    text = r"TOFU_HYBRIDIZE='no': expected 1 \(on, as when it is unset\) or 0 \(off\)"
    with pytest.raises(ConfigError, match=text):
        Config.from_environment({"TOFU_HYBRIDIZE": "no"})


@pytest.mark.parametrize("pin", ["w", "w=", "=0", "w=a", "w=0,", "w=-2", "w=0.5", "w==1"])
def test_a_pin_is_a_name_and_dimensions(pin):
    with pytest.raises(ConfigError, match=r"--pin .*: expected TENSOR=DIM"):
        parse_pins([pin], "--pin")


def test_pins_that_contradict_each_other():
    assert parse_pins(["w=0", "w=0"], "--pin") == (("w", (0,)),)
    with pytest.raises(ConfigError, match="--pin w=1: already pinned as w=0; keep one"):
        parse_pins(["w=0", "v=2", "w=1"], "--pin")


def test_a_line_of_a_file_that_is_no_pin(tmp_path):
    path = tmp_path / "pins"
    path.write_text("w=0\nnonsense\n")
    with pytest.raises(ConfigError, match=r"--pins .*pins, line 2: nonsense: expected TENSOR=DIM"):
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


def test_the_number_of_workers_ends_where_that_of_the_passes_does():
    core = pytest.importorskip("tofu._core")
    assert parse_workers(MAX_WORKERS, "workers") == MAX_WORKERS
    with pytest.raises(ConfigError, match=f"workers={MAX_WORKERS + 1}: .*1 to {MAX_WORKERS:,};"):
        parse_workers(MAX_WORKERS + 1, "workers")
    assert core.max_workers == MAX_WORKERS
    table = core.StrategyTable(document([None]), core.Graph(ONE_NODE))
    with pytest.raises(PlanError, match=f"found {MAX_WORKERS + 1} workers, expected 1 to"):
        core.plan(table, workers=MAX_WORKERS + 1)
    assert core.plan(table, workers=MAX_WORKERS).workers == MAX_WORKERS


def test_devices_and_fetches_are_read_in_any_case():
    config = Config.from_environment({"TOFU_DEVICE": " CPU ", "TOFU_FETCH": "Plain"})
    assert (config.device, config.fetch) == ("cpu", "plain")
    assert (Config.from_environment({}).device, Config.from_environment({}).fetch) == (None, None)


@pytest.mark.parametrize(
    ("read", "variable", "value", "expected"),
    [
        (
            Config.from_environment,
            "TOFU_DEVICE",
            "tpu",
            "TOFU_DEVICE='tpu': expected 'gpu' or 'cpu'; unset it",
        ),
        (
            Config.from_environment,
            "TOFU_FETCH",
            "copy",
            "TOFU_FETCH='copy': expected 'multifetch' or 'plain'; unset it",
        ),
        (graph_pass, "MXNET_GRAPH_PASS", "tufo", "MXNET_GRAPH_PASS='tufo': "),
    ],
)
def test_what_is_no_value_is_told_what_is(read, variable, value, expected):
    with pytest.raises(ConfigError) as error:
        read({variable: value})
    assert str(error.value).startswith(expected)


def test_words_of_the_log(tmp_path, monkeypatch):
    config = Config.from_environment({"TOFU_LOG": f"debug, dump:{tmp_path / 'a' / 'b'}"})
    assert (config.log_level, config.dump_dir) == ("debug", tmp_path / "a" / "b")
    assert config.dump_dir.is_dir()
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(ConfigError, match=r"TOFU_LOG=.*b cannot be written to; choose another"):
        Config.from_environment({"TOFU_LOG": f"dump:{tmp_path / 'b'}"})


def test_files_that_describe_are_all_there(tmp_path):
    paths = [tmp_path / "one.py", tmp_path / "two.py"]
    paths[0].write_text("")
    text = os.pathsep.join(map(str, paths))
    with pytest.raises(ConfigError, match=r"two\.py is"):
        Config.from_environment({"TOFU_DESCRIBE": text})
    paths[1].write_text("")
    assert Config.from_environment({"TOFU_DESCRIBE": text}).describe == tuple(paths)


def test_the_cache_is_in_the_users_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "tofu"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "tofu"


@pytest.mark.parametrize("value", ["-1", "soon", "inf", "nan"])
def test_time_limits_are_seconds(value):
    assert Config.from_environment({"TOFU_TIMEOUT": "2.5"}).timeout_s == 2.5
    with pytest.raises(ConfigError, match=f"^TOFU_TIMEOUT={value}: expected a number of seconds"):
        Config.from_environment({"TOFU_TIMEOUT": value})


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = config.private_directory("kernels")
    assert found == tmp_path / "cache" / "tofu" / "kernels"
    assert found.stat().st_mode & 0o777 == 0o700
    for folder in (found, found.parent):
        before = folder.stat().st_mode
        for mode in (0o770, 0o707):
            folder.chmod(mode)
            assert config.private_directory("kernels") is None
        folder.chmod(before)
    assert config.private_directory("kernels") == found
    monkeypatch.setattr(config.os, "geteuid", lambda: found.stat().st_uid + 1)
    assert config.private_directory("kernels") is None


def test_a_link_to_a_folder_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "tofu").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tofu" / "kernels").symlink_to(tmp_path / "elsewhere")
    assert config.private_directory("kernels") is None
    (tmp_path / "tofu" / "file").write_text("")
    assert config.private_directory("file/kernels") is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("12GiB", 12 << 30), ("1.5 gib", 3 << 29), ("800MB", 800 * 10**6), ("7B", 7), ("2k", 2048)],
)
def test_sizes(text, size):
    assert parse_bytes(text, "--gpu-memory") == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1GiB", "12 apples", "12", "0B", "1e9", "9" * 40 + "TiB"]
)
def test_sizes_that_are_none(text):
    with pytest.raises(ConfigError, match=f"--gpu-memory={text}: expected a size with its unit"):
        parse_bytes(text, "--gpu-memory")
