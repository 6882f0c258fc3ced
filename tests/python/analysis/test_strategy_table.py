"""Descriptions that stop the analysis of a graph."""

import json

import pytest

from tofu import _core
from tofu.analysis import described
from tofu.analysis.strategy_table import strategy_table
from tofu.errors import ConfigError


def test_a_file_of_descriptions_that_cannot_be_loaded_is_an_error(monkeypatch):
    """A description that fails leaves its operator whole; a missing file is the user's mistake."""

    def refuse():
        raise ConfigError("absent.py: cannot be read")

    monkeypatch.setattr(described, "load_described", refuse)
    document = {
        "nodes": [
            {"op": "null", "name": "x", "inputs": []},
            {"op": "not_described", "name": "y", "inputs": [[0, 0, 0]]},
        ],
        "arg_nodes": [0],
        "node_row_ptr": [0, 1, 2],
        "heads": [[1, 0, 0]],
        "attrs": {"shape": ["list_shape", [[4, 2], [4, 2]]], "dtype": ["list_int", [0, 0]]},
    }
    with pytest.raises(ConfigError, match=r"absent\.py: cannot be read"):
        strategy_table(_core.Graph(json.dumps(document)))
