"""Plan documents that no search made."""

import json

from tofu.plans import Plan


def document(**changes):
    document = {
        "format": "tofu-plan",
        "version": 1,
        "workers": 4,
        "graph_hash": "0123456789abcdef",
        "parts": [2, 2],
        "steps": [
            {"parts": 2, "groups": 1, "bytes": 512},
            {"parts": 2, "groups": 2, "bytes": 1024},
        ],
        "total_bytes": 1536,
        "lower_bound_bytes": 1536,
        "gap": 0.0,
        "status": "optimal",
        "search_seconds": 0.01,
        "tensors": [
            {"node": "w", "output": 0, "shape": [8, 6], "dtype": 0, "cuts": [0, 1]},
            {"node": "b", "output": 0, "shape": [3], "dtype": 1, "cuts": [-1, -1]},
        ],
        "operators": [{"node": "fc", "op": "FullyConnected", "cuts": ["b", None], "bytes": 96}],
    }
    document.update(changes)
    return document


def stack(layers=40, name="layer{}_weight"):
    """A plan of many layers, all alike except the first."""
    tensors = [
        {
            "node": name.format(i),
            "output": 0,
            "shape": [8, 6],
            "dtype": 0,
            "cuts": [0, 1] if i else [1, 0],
        }
        for i in range(layers)
    ]
    tensors += [{**each, "node": each["node"] + "_update"} for each in tensors]
    operators = [
        {"node": f"layer{i}_fc", "op": "FullyConnected", "cuts": ["b", None], "bytes": 96}
        for i in range(layers)
    ]
    return Plan.from_json(
        json.dumps(
            document(
                tensors=tensors,
                operators=operators,
                model="stack",
                nodes=99,
                bytes_per_worker={"parameters": 1024, "fetch_buffers": 512},
            )
        )
    )
