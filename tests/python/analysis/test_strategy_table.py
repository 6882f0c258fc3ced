"""Descriptions that stop the analysis of a graph."""

import json

import pytest

from tofu import _core
from tofu.analysis import described
from tofu.analysis.strategy_table import strategy_table
from tofu.errors import ConfigError


def graph_of(op, attrs=None):
    document = {
        "nodes": [
            {"op": "null", "name": "x", "inputs": []},
            {"op": op, "name": "y", "attrs": attrs or {}, "inputs": [[0, 0, 0]]},
        ],
        "arg_nodes": [0],
        "node_row_ptr": [0, 1, 2],
        "heads": [[1, 0, 0]],
        "attrs": {"shape": ["list_shape", [[4, 2], [16]]], "dtype": ["list_int", [0, 0]]},
    }
    return _core.Graph(json.dumps(document))


def test_a_file_of_descriptions_that_cannot_be_loaded_is_an_error(monkeypatch):
    """A description that fails leaves its operator whole; a missing file is the user's mistake."""

    def refuse():
        raise ConfigError("absent.py: cannot be read")

    monkeypatch.setattr(described, "load_described", refuse)
    with pytest.raises(ConfigError, match=r"absent\.py: cannot be read"):
        strategy_table(graph_of("not_described"))


def test_a_description_that_declines_a_call_says_why():
    _, undescribed = strategy_table(graph_of("repeat", {"repeats": "2"}))
    assert undescribed == {"repeat": "repeat of the flattened tensor is not described"}
    assert strategy_table(graph_of("not_described"))[1] == {"not_described": ""}
