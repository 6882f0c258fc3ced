"""Small documents for the C++ passes, written by hand: no MXNet, no descriptions."""

from __future__ import annotations

from typing import Any


def _dim(var: int) -> dict[str, Any]:
    """The access to a dimension at the variable itself."""
    return {"lo": {"terms": [[var, 0, 1]]}, "hi": {"terms": [[var, 1, 1]]}}


def _product_row() -> dict[str, Any]:
    """out[i, j] = a[i, j] * b[i, j]."""
    dims = [_dim(0), _dim(1)]
    return {
        "op": "elemwise_mul",
        "source": "by hand",
        "elementwise": True,
        "random": False,
        "vars": [
            {"name": "i", "extent": ["input", 0, 0]},
            {"name": "j", "extent": ["input", 0, 1]},
        ],
        "splittable": [0, 1],
        "outputs": [{"dims": dims}],
        "inputs": [{"dims": dims}, {"dims": dims}],
        "attrs": [],
    }


def _matmul_row() -> dict[str, Any]:
    """out[i, k] = Sum over j of a[i, j] * b[j, k]."""
    return {
        "op": "dot",
        "source": "by hand",
        "elementwise": False,
        "random": False,
        "vars": [
            {"name": "i", "extent": ["input", 0, 0]},
            {"name": "k", "extent": ["input", 1, 1]},
            {"name": "j", "extent": ["input", 0, 1]},
        ],
        "splittable": [0, 1, 2],
        "outputs": [{"dims": [_dim(0), _dim(1)], "reduce": {"2": "sum"}}],
        "inputs": [{"dims": [_dim(0), _dim(2)]}, {"dims": [_dim(2), _dim(1)]}],
        "attrs": [],
    }


def drawing_row() -> dict[str, Any]:
    """out[i, j] is a random number."""
    return {
        "op": "_random_normal",
        "source": "by hand",
        "elementwise": True,
        "random": True,
        "vars": [
            {"name": "i", "extent": ["output", 0, 0]},
            {"name": "j", "extent": ["output", 0, 1]},
        ],
        "splittable": [0, 1],
        "outputs": [{"dims": [_dim(0), _dim(1)]}],
        "inputs": [],
        "attrs": [],
    }


def graph() -> dict[str, Any]:
    """y = x . w with the gradient g * y of w; 8 x 8, float32."""
    variables = {"x": "data", "w": "parameter", "g": "head_grad:0"}
    nodes = [
        {"op": "null", "name": name, "attrs": {"__tofu_role__": role}, "inputs": []}
        for name, role in variables.items()
    ]
    nodes.append({"op": "dot", "name": "y", "inputs": [[0, 0, 0], [1, 0, 0]]})
    nodes.append({"op": "elemwise_mul", "name": "dw", "inputs": [[2, 0, 0], [3, 0, 0]]})
    return {
        "nodes": nodes,
        "arg_nodes": [0, 1, 2],
        "node_row_ptr": [0, 1, 2, 3, 4, 5],
        "heads": [[3, 0, 0], [4, 0, 0]],
        "attrs": {
            "shape": ["list_shape", [[8, 8]] * 5],
            "dtype": ["list_int", [0] * 5],
            "tofu_heads": ["list_str", ["output", "gradient:w"]],
        },
    }


def table() -> dict[str, Any]:
    """The strategy table of `graph`."""
    return {
        "format": "tofu-strategy-table",
        "version": 1,
        "nodes": [-1, -1, -1, 0, 1],
        "rows": [_matmul_row(), _product_row()],
    }
