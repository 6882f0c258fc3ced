"""A partitioning algorithm: each step cuts every parameter along its largest dimension.

    tofu export --workers 4 --output problem mlp
    python largest_dimension.py problem/plan.json > own.json
    tofu plan --cuts own.json mlp

Tofu chooses the cuts of tensors that are left out, so that they fit the others.
"""

import json
import sys


def largest_dimensions(shape, parts):
    """The dimension that each step cuts; parts are rounded up, as tofu's tiles are."""
    cuts = []
    for count in parts:
        dim = max(range(len(shape)), key=lambda d: shape[d])
        shape = [-(-size // count) if d == dim else size for d, size in enumerate(shape)]
        cuts.append(dim)
    return cuts


def main(path):
    """Print the cuts of each parameter of a plan in JSON."""
    with open(path, encoding="utf-8") as file:
        plan = json.load(file)
    cuts = {
        tensor["node"]: largest_dimensions(tensor["shape"], plan["parts"])
        for tensor in plan["tensors"]
        if tensor["node"].endswith(("_weight", "_bias"))
    }
    print(json.dumps({"format": "tofu-cuts", "version": 1, "parts": plan["parts"], "cuts": cuts}))


if __name__ == "__main__":
    main(sys.argv[1])
